#include "platform/host/device.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "platform/host/event.hpp"

namespace switchyard {

namespace {

thread_local int current_ordinal = 0;

}  // namespace

struct Device::All {
  All() {
    for (int ordinal = 0; ordinal < kNumDevices; ++ordinal) devices[ordinal].ordinal_ = ordinal;
  }
  Device devices[kNumDevices];
};

Device::All& Device::all() {
  static All& devices = *new All;  // never destroyed: see OWNERSHIP
  return devices;
}

Device& Device::current() { return all().devices[current_ordinal]; }

Device* Device::find(int ordinal) {
  return ordinal >= 0 && ordinal < kNumDevices ? &all().devices[ordinal] : nullptr;
}

Status Device::set_current(int ordinal) {
  if (find(ordinal) == nullptr) {
    return Status::invalid_argument(text("device ", ordinal, " does not exist, allowed 0..", kNumDevices - 1));
  }
  current_ordinal = ordinal;
  return {};
}

Result<Device::StreamPtr> Device::start_stream(const std::string& role) {
  SWITCHYARD_ASSIGN(auto stream, Stream::create({.name = text("sy", ordinal_, ".", role)}));
  return StreamPtr(std::move(stream));
}

Result<Stream*> Device::default_stream() {
  const std::lock_guard lock(mutex_);
  if (!default_stream_) {
    SWITCHYARD_ASSIGN(default_stream_, start_stream("default"));
  }
  return default_stream_.get();
}

Result<Stream*> Device::create_stream(StreamOrder order) {
  take_finished();  // ends their workers, outside the lock
  const std::lock_guard lock(mutex_);
  SWITCHYARD_ASSIGN(StreamPtr stream, start_stream(text(++num_created_)));
  Stream* const handle = stream.get();
  streams_.emplace(handle, Entry{std::move(stream), order});
  return handle;
}

Result<Device::Located> Device::locate(const void* handle) {
  if (handle == nullptr) {
    SWITCHYARD_ASSIGN(Stream* const stream, current().default_stream());
    return Located{&current(), stream, StreamOrder::kBlocking};
  }
  const auto look_in = [handle](Device& device) -> std::optional<Located> {
    const std::lock_guard lock(device.mutex_);
    const auto found = device.streams_.find(handle);
    if (found == device.streams_.end()) return std::nullopt;
    return Located{&device, found->second.stream.get(), found->second.order};
  };
  if (const auto located = look_in(current())) return *located;
  for (Device& device : all().devices) {
    if (const auto located = look_in(device)) return *located;
  }
  return Status::invalid_argument(text("stream ", handle, " does not exist or was destroyed"));
}

Result<Stream*> Device::find_stream(const void* handle) {
  SWITCHYARD_ASSIGN(const Located located, locate(handle));
  return located.stream;
}

Result<Stream*> Device::stream_for_post(const void* handle) {
  SWITCHYARD_ASSIGN(const Located located, locate(handle));
  if (located.order == StreamOrder::kBlocking) SWITCHYARD_TRY(located.owner->queue_legacy_order(*located.stream));
  return located.stream;
}

Status Device::queue_legacy_order(Stream& stream) {
  std::vector<StreamPtr> earlier;
  {
    const std::lock_guard lock(mutex_);
    if (&stream == default_stream_.get()) {
      earlier = created_streams(StreamOrder::kBlocking);
    } else if (default_stream_) {
      earlier.push_back(default_stream_);
    }
  }
  for (const StreamPtr& other : earlier) {
    if (other->idle()) continue;
    Event event;
    SWITCHYARD_TRY(event.record(*other));
    SWITCHYARD_TRY(stream.wait(event));
  }
  return {};
}

std::vector<Device::StreamPtr> Device::created_streams(StreamOrder loosest) const {
  std::vector<StreamPtr> found;
  const auto add = [&](const Entry& entry) {
    if (entry.order <= loosest) found.push_back(entry.stream);
  };
  for (const auto& [handle, entry] : streams_) add(entry);
  for (const Entry& entry : retired_) add(entry);
  return found;
}

Status Device::synchronize(Deadline deadline) {
  std::vector<StreamPtr> streams;
  {
    const std::lock_guard lock(mutex_);
    streams = created_streams(StreamOrder::kNonBlocking);
    if (default_stream_) streams.push_back(default_stream_);
  }
  Status first_error;
  for (const StreamPtr& stream : streams) {
    Status status = stream->synchronize(deadline);
    static_cast<void>(stream->take_error());  // it is the one just returned: reported once, then forgotten
    if (first_error.ok()) first_error = std::move(status);
  }
  streams.clear();
  take_finished();
  return first_error;
}

Status Device::destroy_stream(const void* handle) {
  if (handle == nullptr) return Status::invalid_argument("the default stream cannot be destroyed");
  SWITCHYARD_ASSIGN(const Located located, locate(handle));
  Device& owner = *located.owner;
  {
    const std::lock_guard lock(owner.mutex_);
    const auto found = owner.streams_.extract(handle);
    if (!found.empty()) owner.retired_.push_back(std::move(found.mapped()));
  }
  owner.take_finished();
  return {};
}

std::vector<Device::StreamPtr> Device::take_finished() {
  const std::lock_guard lock(mutex_);
  std::vector<StreamPtr> finished;
  std::erase_if(retired_, [&](Entry& entry) {
    if (!entry.stream->idle()) return false;
    finished.push_back(std::move(entry.stream));
    return true;
  });
  return finished;
}

}  // namespace switchyard
