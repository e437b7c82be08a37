// The C++ face over Collectives: Status becomes an exception here and nowhere below.
#include "coll/collectives.hpp"
#include "comm/face.hpp"
#include "switchyard/coll.hpp"

namespace switchyard::coll {
namespace {

using face::check;

}  // namespace

CollGroup::CollGroup(const Comm& comm) : collectives_(face::take(Collectives::create(comm.internal()))) {}
CollGroup::~CollGroup() = default;
CollGroup::CollGroup(CollGroup&&) noexcept = default;

void CollGroup::all_gather(const void* in, void* out, size_t num_elements, DType dtype, StreamRef stream) {
  check(collectives_->all_gather(in, out, num_elements, dtype, stream));
}
void CollGroup::all_reduce(const void* in, void* out, size_t num_elements, DType dtype, ReduceOp op,
                           StreamRef stream) {
  check(collectives_->all_reduce(in, out, num_elements, dtype, op, stream));
}
void CollGroup::reduce_scatter(const void* in, void* out, size_t num_elements, DType dtype, ReduceOp op,
                               StreamRef stream) {
  check(collectives_->reduce_scatter(in, out, num_elements, dtype, op, stream));
}
void CollGroup::broadcast(const void* in, void* out, size_t num_elements, DType dtype, int root,
                          StreamRef stream) {
  check(collectives_->broadcast(in, out, num_elements, dtype, root, stream));
}
void CollGroup::all_to_all(const void* in, void* out, size_t num_elements, DType dtype, StreamRef stream) {
  check(collectives_->all_to_all(in, out, num_elements, dtype, stream));
}
void CollGroup::all_to_all_v(const void* in, std::span<const Part> sent, void* out, std::span<const Part> received,
                             DType dtype, StreamRef stream) {
  check(collectives_->all_to_all_v(in, sent, out, received, dtype, stream));
}

}  // namespace switchyard::coll
