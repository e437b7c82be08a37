#include "comm/window.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/failpoint.hpp"
#include "base/checked.hpp"
#include "base/guarded.hpp"
#include "base/log.hpp"

namespace switchyard {
namespace {

constexpr uint64_t kStrideAlignment = 2u << 20;  // so that peers' memory may be backed by huge pages

constexpr uint64_t kMaxOfferBytes = uint64_t(1) << 46;  // so that no sum over the ranks of a node can wrap

// What a rank tells the others about its part.
struct Offer {
  uint64_t num_bytes;
  uint64_t alloc_bytes;
  uint64_t offset;  // of the window inside its allocation
  uint32_t mappable;
  uint32_t reserved;
};

// Pages beyond the end of the memory, or cut off later, would end this process by SIGBUS when it touches them.
Status check_offer(int fd, const Offer& offer, int rank) {
  struct stat info;
  if (fstat(fd, &info) != 0) return Status::system_error(text("looking at the memory of rank ", rank));
  if (uint64_t(info.st_size) < offer.alloc_bytes) {
    return Status::remote(text("rank ", rank, " offered ", offer.alloc_bytes, " bytes of window memory and sent ",
                               info.st_size));
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Status::remote(text("rank ", rank, " sent window memory that it could take away again (not sealed)"));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Window>> Window::create(const Context& context, uint32_t id, void* memory, size_t num_bytes,
                                               Deadline deadline) {
  const auto allocation = context.runtime.find(memory);
  if (!allocation) {
    return Status::invalid_argument("window memory must come from ncclMemAlloc, cudaMalloc or Communicator::allocate");
  }
  const size_t offset = size_t(static_cast<char*>(memory) - static_cast<char*>(allocation->base));
  if (num_bytes == 0 || !range_fits(offset, num_bytes, allocation->num_bytes)) {
    return Status::invalid_argument(text("window of ", num_bytes, " bytes at offset ", offset,
                                         " must be inside its allocation of ", allocation->num_bytes, " bytes"));
  }
  std::unique_ptr<Window> window(new Window(context.runtime, context.table, id, static_cast<char*>(memory), num_bytes));
  const LocalPeers::Key key{context.job_id, context.comm_id, id, context.rank};
  SWITCHYARD_FAILPOINT_TRY("window.before_publish");
  LocalPeers::instance().publish(key, window->local_);
  const Status mapped =
      guarded([&] { return window->map_peers(context, allocation->num_bytes, offset, allocation->fd, deadline); });
  LocalPeers::instance().withdraw(key);
  SWITCHYARD_TRY(mapped);
  return window;
}

Status Window::map_peers(const Context& context, size_t alloc_bytes, size_t offset, int fd, Deadline deadline) {
  SWITCHYARD_FAILPOINT_TRY("window.before_exchange");
  const Offer mine{num_bytes_, alloc_bytes, offset, uint32_t(fd >= 0), 0};
  SWITCHYARD_ASSIGN(const std::vector<Offer> offers,
                    context.bootstrap.exchange_values(context.comm_id, context.members, mine, deadline));
  const int num_ranks = int(context.members.size());
  for (int rank = 0; rank < num_ranks; ++rank) {
    const Offer& offer = offers[size_t(rank)];
    if (offer.num_bytes != num_bytes_) {
      return Status::invalid_usage(text("a window must have one size on all ranks: rank ", rank, " registered ",
                                        offer.num_bytes, " bytes, rank ", context.rank, " ", num_bytes_));
    }
    if (!range_fits(offer.offset, offer.num_bytes, offer.alloc_bytes) || offer.alloc_bytes > kMaxOfferBytes) {
      return Status::remote(text("rank ", rank, " sent an impossible window offer"));
    }
  }
  SWITCHYARD_FAILPOINT_TRY("window.after_exchange");
  std::vector<Fd> fds;
  const int first = context.reach.first;
  const int num_local = context.reach.count;
  uint64_t stride = 0;
  if (context.link != nullptr) {
    SWITCHYARD_ASSIGN(fds, context.link->share(fd, deadline));
    for (int i = 0; i < num_local; ++i) stride = std::max(stride, offers[size_t(first + i)].alloc_bytes);
    stride = round_up(stride, kStrideAlignment);
    reserved_bytes_ = size_t(stride) * size_t(num_local);
    reserved_ = mmap(nullptr, reserved_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved_ == MAP_FAILED) {
      reserved_ = nullptr;
      return Status::system_error(text("reserving ", reserved_bytes_, " bytes of addresses for a window"));
    }
  }
  SWITCHYARD_FAILPOINT_TRY("window.after_share");
  bases_.assign(size_t(num_ranks), nullptr);
  for (int i = 0; i < num_local; ++i) {
    const int rank = first + i;
    if (context.whereabouts[size_t(rank)].same_process(context.whereabouts[size_t(context.rank)])) {
      bases_[size_t(rank)] = LocalPeers::instance().find({context.job_id, context.comm_id, id_, rank});
      if (bases_[size_t(rank)] == nullptr) {
        // It gave up before this rank looked it up. Where it did not reach the barrier below, what this rank learns there
        // says why; where it did, only an abort or its deadline can have ended its wait.
        SWITCHYARD_TRY(context.bootstrap.barrier(context.comm_id, context.members, deadline));
        return Status::remote(text("rank ", rank, " aborted or ran out of time while it registered a window"));
      }
      kept_.push_back(runtime_.keep(bases_[size_t(rank)]));
      continue;
    }
    char* place = static_cast<char*>(reserved_) + size_t(i) * stride;
    const Offer& offer = offers[size_t(rank)];
    SWITCHYARD_TRY(check_offer(fds[size_t(i)].get(), offer, rank));
    if (mmap(place, offer.alloc_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fds[size_t(i)].get(), 0) ==
        MAP_FAILED) {
      return Status::system_error(text("mapping the window of rank ", rank));
    }
    bases_[size_t(rank)] = place + offer.offset;
  }
  SWITCHYARD_ASSIGN(void* table, runtime_.allocate(bases_.size() * sizeof(char*)));
  device_bases_ = static_cast<char**>(table);
  SWITCHYARD_TRY(runtime_.upload(device_bases_, bases_.data(), bases_.size() * sizeof(char*)));
  SWITCHYARD_TRY(enter_in_table(device_bases_));
  SWITCHYARD_FAILPOINT_TRY("window.after_map");
  // Nobody withdraws its address or uses the window before everybody has looked it up.
  return context.bootstrap.barrier(context.comm_id, context.members, deadline);
}

// Null: it is gone.
Status Window::enter_in_table(char* const* bases) const {
  if (table_.slots == nullptr || !WindowTable::has_slot(id_)) return {};
  return runtime_.upload(const_cast<char* const**>(table_.slots + id_), &bases, sizeof(bases));
}

Window::~Window() {
  if (device_bases_ != nullptr) {
    if (const Status entered = enter_in_table(nullptr); !entered.ok()) log(LogLevel::kWarn, entered.message());
    if (const Status freed = runtime_.free(device_bases_); !freed.ok()) log(LogLevel::kWarn, freed.message());
  }
  if (reserved_ != nullptr) munmap(reserved_, reserved_bytes_);
}

bool Window::contains(const void* address, size_t num_bytes) const {
  const char* place = static_cast<const char*>(address);
  return place >= local_ && range_fits(size_t(place - local_), num_bytes, num_bytes_);
}

}  // namespace switchyard
