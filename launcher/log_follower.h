// `--tee`: the lines that some ranks write into their logs, shown where the job was started.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

// "[rank 3] 2026-01-02 03:04:05.678 info text": the line of a log, with the rank in front instead of within.
std::string teed_line(int rank, const std::string& line);

// Follows logs/rank-RRRRR.log of a run directory by name: a file that a new start puts in the place of another is read from its beginning, after
// the rest of the old one. Only what is written after construction is shown, and only whole lines.
class LogFollower {
 public:
  // write: gets one or more lines with their ends, of one rank, in one piece.
  LogFollower(const std::string& run_directory, const std::vector<int>& ranks,
              std::function<void(const std::string&)> write);
  ~LogFollower();
  LogFollower(const LogFollower&) = delete;
  LogFollower& operator=(const LogFollower&) = delete;

  void poll();
  // What is left, a line without an end included: nobody will write it any longer.
  void finish();

 private:
  struct File {
    int rank = 0;
    std::string path;
    int descriptor = -1;
    std::pair<dev_t, ino_t> identity;  // of the file that is open, or was there before anything began
    std::string rest;                  // of a line
  };
  void read(File& file) const;
  void reopen(File& file);
  void close(File& file) const;

  std::vector<File> files_;
  std::function<void(const std::string&)> write_;
};

}  // namespace tessera
