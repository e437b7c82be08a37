// A file through which the ranks of one host find each other: rank 0 writes an id, the others wait for it. The file is
// 0600 and appears in one piece; what was not written by this user, or by another job, is not believed.
//
// THREADS    any; nothing is shared.
// OWNERSHIP  a PublishedFile removes its file.
// ERRORS     kInvalidUsage for files and folders that others could have tampered with.
#pragma once
#include <optional>
#include <string>

#include "comm/unique_id.hpp"
#include "switchyard/status.hpp"

namespace switchyard {

// The folder for files of jobs that name none: $XDG_RUNTIME_DIR/switchyard, or /tmp/switchyard-UID.
std::string private_folder(const std::optional<std::string>& xdg_runtime_dir);
// The file of a job in that folder.
std::string job_file(const std::string& folder, const std::string& identity);

class PublishedFile {
 public:
  // EFFECTS: replaces what is there. With a private folder: creates it 0700 if needed, or checks that it is ours.
  static Result<PublishedFile> publish(const std::string& path, const std::optional<std::string>& folder,
                                       const std::string& identity, const UniqueId& id);
  PublishedFile(PublishedFile&& other) noexcept;
  PublishedFile& operator=(PublishedFile&&) = delete;
  // Removes the file, and the private folder if that was the last one in it.
  ~PublishedFile();

 private:
  PublishedFile(std::string path, std::optional<std::string> folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}
  std::string path_;  // empty once moved from
  std::optional<std::string> folder_;
};

// The id in the file; nothing if there is none yet, or one of another job. BLOCKING: never.
Result<std::optional<UniqueId>> read_published(const std::string& path, const std::string& identity);

}  // namespace switchyard
