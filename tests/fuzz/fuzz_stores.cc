// Where ranks meet: SWITCHYARD_STORE, unique ids in hexadecimal and as bytes, and the content of store files.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "comm/file_store.hpp"
#include "comm/rendezvous.hpp"
#include "fuzz.hpp"

namespace switchyard::fuzz {
namespace {

const std::string kIdentity = "a job\n";

void check_store(const std::string& value) {
  auto store = parse_store(value);
  if (!store.ok()) return;
  require(store->path.empty() != store->host.empty(), "a store is a file or a port");
  require(store->path.empty() || store->path.front() == '/', "paths are absolute");
  require(store->host.empty() || store->port != 0, "a port is named");
}

void check_hex(const std::string& hex) {
  auto id = UniqueId::from_hex(hex);
  if (!id.ok()) return;
  std::string lower = hex;
  for (char& c : lower) c = char(std::tolower(static_cast<unsigned char>(c)));
  require(id->to_hex() == lower, "an id survives hexadecimal");
}

// The checksum is no secret: whoever wants to can make any bytes pass it.
void check_bytes(std::span<const std::byte> bytes) {
  UniqueId id;
  std::memcpy(static_cast<void*>(&id), bytes.data(), std::min(bytes.size(), sizeof id));
  const Digest digest = plain_hash(std::as_bytes(std::span(&id, 1)).first<offsetof(UniqueId, checksum)>());
  std::copy_n(digest.begin(), id.checksum.size(), id.checksum.begin());
  if (!id.validate().ok()) return;
  require(id.port != 0 && !id.endpoint().is_wildcard(), "a valid id leads somewhere");
  require(!id.endpoint().to_string().empty(), "an endpoint has a name");
  auto again = UniqueId::from_hex(id.to_hex());
  require(again.ok() && *again == id, "a valid id survives hexadecimal");
}

// A file of this process alone, gone when it exits.
class StoreFile {
 public:
  StoreFile() {
    char name[] = "/tmp/switchyard_fuzz_XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/store";
    fd_.reset(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    require(fd_.valid(), "a file to fuzz");
  }
  ~StoreFile() { std::filesystem::remove_all(folder_); }
  const std::string& path() const { return path_; }
  void fill(std::span<const std::byte> content) const {
    require(ftruncate(fd_.get(), 0) == 0, "ftruncate");
    require(pwrite(fd_.get(), content.data(), content.size(), 0) == ssize_t(content.size()), "pwrite");
  }

 private:
  std::string folder_, path_;
  Fd fd_;
};

void check_file(std::span<const std::byte> content) {
  static const StoreFile file;
  file.fill(content);
  auto id = read_published(file.path(), kIdentity);
  require(id.ok(), "the file is ours, whatever is in it");
  if (*id) require((*id)->validate().ok(), "an id that was read is valid");
  require(!*id || !*read_published(file.path(), "another job\n"), "ids of other jobs are not taken");
}

}  // namespace
}  // namespace switchyard::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  using namespace switchyard::fuzz;
  Input input(data, num_bytes);
  switch (input.byte() % 4) {
    case 0: check_store(input.words()); break;
    case 1: check_hex(input.words()); break;
    case 2: check_bytes(input.rest()); break;
    default: check_file(input.rest()); break;
  }
  return 0;
}
