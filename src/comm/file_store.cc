#include "comm/file_store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <span>
#include <utility>

#include "base/fd.hpp"
#include "base/retry.hpp"
#include "comm/hex.hpp"
#include "comm/keyed_hash.hpp"

namespace switchyard {
namespace {

constexpr size_t kMaxFileBytes = 4096;

// The identity enters as a hash: it may have any length and any characters.
std::string file_text(const std::string& identity, const UniqueId& id) {
  return text("switchyard store 1\n", to_hex(plain_hash(std::as_bytes(std::span(identity)))), "\n", id.to_hex(), "\n");
}

Status check_private(const std::string& path, const struct stat& info, const char* kind) {
  if (info.st_uid != geteuid()) {
    return Status::invalid_usage(text(kind, " '", path, "' belongs to user ", info.st_uid, ", not to ", geteuid(),
                                      "; remove it or name another place"));
  }
  if ((info.st_mode & 077) != 0) {
    return Status::invalid_usage(text(kind, " '", path, "' can be used by others (mode ", std::oct, info.st_mode & 0777,
                                      "); remove it or take their rights away"));
  }
  return {};
}

Status make_folder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return Status::system_error(text("cannot create the folder '", folder, "'"));
  struct stat info;
  if (lstat(folder.c_str(), &info) != 0) return Status::system_error(text("cannot look at the folder '", folder, "'"));
  if (!S_ISDIR(info.st_mode)) return Status::invalid_usage(text("'", folder, "' is no folder; remove it"));
  return check_private(folder, info, "folder");
}

Status write_file(const std::string& path, const std::string& content) {
  const Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) return Status::system_error(text("cannot create '", path, "'"));
  size_t num_written = 0;
  while (num_written < content.size()) {
    const ssize_t step = write(fd.get(), content.data() + num_written, content.size() - num_written);
    if (step < 0 && errno == EINTR) continue;
    if (step <= 0) {
      const Status status = Status::system_error(text("cannot write '", path, "'"));
      unlink(path.c_str());
      return status;
    }
    num_written += size_t(step);
  }
  return {};
}

Status write_whole(const std::string& path, const std::string& content) {
  std::array<std::byte, 8> suffix;
  fill_random(suffix);
  const std::string draft = text(path, ".", to_hex(suffix));
  SWITCHYARD_TRY(write_file(draft, content));
  if (rename(draft.c_str(), path.c_str()) != 0) {
    const Status status = Status::system_error(text("cannot replace '", path, "'"));
    unlink(draft.c_str());
    return status;
  }
  return {};
}

}  // namespace

std::string private_folder(const std::optional<std::string>& xdg_runtime_dir) {
  if (xdg_runtime_dir && xdg_runtime_dir->starts_with('/')) return *xdg_runtime_dir + "/switchyard";
  return text("/tmp/switchyard-", geteuid());
}

std::string job_file(const std::string& folder, const std::string& identity) {
  const Digest digest = plain_hash(std::as_bytes(std::span(identity)));
  return text(folder, "/job-", to_hex(std::span(digest).first(16)));
}

Result<PublishedFile> PublishedFile::publish(const std::string& path, const std::optional<std::string>& folder,
                                             const std::string& identity, const UniqueId& id) {
  Status status;
  // Another job that just ended may remove the empty folder under our feet; it does so once.
  for (int attempt = 0; attempt < 3; attempt++) {
    if (folder) SWITCHYARD_TRY(make_folder(*folder));
    status = write_whole(path, file_text(identity, id));
    if (status.ok()) return PublishedFile(path, folder);
    if (!folder) break;
  }
  return status;
}

PublishedFile::PublishedFile(PublishedFile&& other) noexcept
    : path_(std::exchange(other.path_, {})), folder_(std::move(other.folder_)) {}

PublishedFile::~PublishedFile() {
  if (path_.empty()) return;
  unlink(path_.c_str());
  if (folder_) rmdir(folder_->c_str());
}

Result<std::optional<UniqueId>> read_published(const std::string& path, const std::string& identity) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOENT) return std::optional<UniqueId>();
    return Status::system_error(text("cannot open '", path, "'"));
  }
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return Status::system_error(text("cannot look at '", path, "'"));
  if (!S_ISREG(info.st_mode)) return Status::invalid_usage(text("'", path, "' is no regular file; name another place"));
  SWITCHYARD_TRY(check_private(path, info, "file"));
  std::array<char, kMaxFileBytes> buffer;
  const ssize_t num_read = retry_interrupted([&] { return read(fd.get(), buffer.data(), buffer.size()); });
  if (num_read < 0) return Status::system_error(text("cannot read '", path, "'"));
  const std::string content(buffer.data(), size_t(num_read));
  constexpr size_t kHexBytes = 2 * sizeof(UniqueId);
  if (content.size() < kHexBytes + 1) return std::optional<UniqueId>();
  const auto id = UniqueId::from_hex(content.substr(content.size() - kHexBytes - 1, kHexBytes));
  if (!id.ok() || content != file_text(identity, id.value())) return std::optional<UniqueId>();
  return std::optional(id.value());
}

}  // namespace switchyard
