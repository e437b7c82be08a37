// HostShare: what `switchyard run --hosts` tells the agent on one host, through the agent's standard input: which ranks
// to start there, and how. The job's key is in it, which is why it goes nowhere else: command lines can be read by
// everybody.
//
// encode() and decode() are inverse; decode() takes any bytes.
//
// THREADS  pure functions and values.
// ERRORS   say which field is wrong and what it allows.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/unique_id.hpp"
#include "switchyard/status.hpp"

namespace switchyard::tools {

constexpr size_t kMaxShareBytes = size_t{1} << 20;

struct HostShare {
  std::string host;       // as the hosts file calls it, for messages
  std::string directory;  // absolute
  int first_rank = 0;
  int num_local_ranks = 0;
  int num_ranks = 0;  // of the whole job
  uint64_t grace_ns = 0;
  std::vector<std::string> environment;  // NAME=value; set beside what the host's login has
  UniqueId id;
  std::vector<std::string> command;

  bool operator==(const HostShare&) const = default;
};

// What a share begins with: a line that says what it is, and the number of bytes that follow.
constexpr std::string_view kShareMagic = "switchyard host share 1\n";
constexpr size_t kShareHeaderBytes = kShareMagic.size() + sizeof(uint32_t);
// How many bytes follow these kShareHeaderBytes: at most kMaxShareBytes.
Result<size_t> share_body_bytes(std::string_view header);

// The whole of it, header included.
Result<std::string> encode(const HostShare& share);
Result<HostShare> decode(std::string_view bytes);

}  // namespace switchyard::tools
