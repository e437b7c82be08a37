// Exit codes of our own making; `run` otherwise passes on what a rank gave.
#pragma once

namespace switchyard::tools {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitTimeout = 124;        // as timeout(1)
constexpr int kExitCannotExecute = 126;  // as the shell
constexpr int kExitNotFound = 127;       // as the shell
constexpr int kExitSignalBase = 128;     // plus the number of the signal, as the shell
constexpr int kExitUnreachable = 255;    // as ssh(1), of a host

}  // namespace switchyard::tools
