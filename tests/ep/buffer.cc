#include "ep/buffer.hpp"

#include <cstdio>
#include <cstring>

namespace switchyard::testing {
namespace {

constexpr size_t kWindowMargin = 64;

void warn(const Status& status) {
  if (!status.ok()) fprintf(stderr, "%s\n", status.to_string().c_str());
}

}  // namespace

Buffer::Buffer(Communicator& comm, size_t num_bytes, bool window)
    : comm_(comm), num_bytes_(num_bytes), allocated_(std::max<size_t>(num_bytes, 16)) {
  if (window) {
    const auto sizes = comm.exchange(uint64_t(num_bytes));
    if (sizes.ok()) allocated_ = std::max<size_t>(allocated_, *std::ranges::max_element(sizes.value()));
    else made_ = sizes.status();
    window_start_ = kWindowMargin;
    allocated_ += 2 * kWindowMargin;
    offset_ = (allocated_ - num_bytes) / 16 * 16;
  }
  base_ = static_cast<uint8_t*>(comm.runtime().allocate(allocated_).value());
  if (comm.runtime().device().kind == DeviceKind::kCuda) copy_ = std::make_unique<uint8_t[]>(allocated_);
  host_ = copy_ ? copy_.get() : base_;
  if (!window || !made_.ok()) return;
  const auto registered = comm.register_window(base_ + window_start_, allocated_ - window_start_);
  if (registered.ok()) window_ = registered.value();
  else made_ = registered.status();
}

Buffer::~Buffer() {
  if (window_ != nullptr) warn(comm_.deregister_window(window_));
  warn(comm_.runtime().free(base_));
}

void Buffer::fill(uint8_t value) {
  filled_with_ = value;
  std::memset(host_, value, allocated_);
  to_device();
}

void Buffer::to_device() const {
  if (copy_) warn(comm_.runtime().upload(base_, copy_.get(), allocated_));
}
void Buffer::from_device() const {
  if (copy_) warn(comm_.runtime().download(copy_.get(), base_, allocated_));
}

ep::Tensor Buffer::tensor(DType dtype, std::initializer_list<size_t> sizes) const {
  return window_ ? ep::Tensor::in(*window_, offset_ - window_start_, dtype, sizes)
                 : ep::Tensor::of(base_ + offset_, dtype, sizes);
}

std::string Buffer::margin_fault(const char* name) const {
  const auto untouched = [&](uint8_t byte) { return byte == filled_with_; };
  if (std::all_of(host_, host_ + offset_, untouched) &&
      std::all_of(host_ + offset_ + num_bytes_, host_ + allocated_, untouched)) {
    return "";
  }
  return text("rank ", comm_.rank(), ": bytes around ", name, " were written");
}

}  // namespace switchyard::testing
