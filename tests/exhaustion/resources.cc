#include "resources.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "call_faults.hpp"
#include "switchyard/status.hpp"

namespace switchyard::testing {
namespace {

size_t num_entries(const char* path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path), &closedir);
  size_t count = 0;
  while (folder && readdir(folder.get()) != nullptr) count++;
  return count;
}

// Private mappings are the C library's business: it keeps the stacks of threads that ended, and memory that was freed.
size_t count_mappings() {
  const std::unique_ptr<FILE, int (*)(FILE*)> maps(std::fopen("/proc/self/maps", "re"), &std::fclose);
  size_t count = 0;
  char line[4352], rights[8];
  while (maps && std::fgets(line, sizeof line, maps.get()) != nullptr) {
    const bool is_shared = std::sscanf(line, "%*s %7s", rights) == 1 && rights[3] == 's';
    count += is_shared || std::strstr(line, "memfd:") != nullptr;
  }
  return count;
}

}  // namespace

Resources Resources::now() {
  const size_t num_sockets = testing::num_libfabric_sockets();
  return {num_entries("/proc/self/fd") - num_sockets, num_sockets, count_mappings(), num_entries("/proc/self/task"),
          num_blocks_in_use()};
}

Resources Resources::later() const {
  Resources held = now();
  for (int i = 0; i < 1000 && held.num_threads > num_threads; ++i) {
    poll(nullptr, 0, 1);
    held = now();
  }
  return held;
}

bool Resources::exceeds(const Resources& other) const {
  return num_files > other.num_files || num_mappings > other.num_mappings || num_threads > other.num_threads ||
         num_blocks > other.num_blocks;
}

std::string Resources::to_string() const {
  return text(num_files, " descriptors, ", num_libfabric_sockets, " sockets of libfabric, ", num_mappings,
              " mappings, ", num_threads, " threads, ", num_blocks, " blocks");
}

}  // namespace switchyard::testing
