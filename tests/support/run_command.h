// Runs a shell command as a user would and returns what it printed and how it ended.
#pragma once

#include <map>
#include <string>

namespace tessera::test {

struct CommandResult {
  int exit_code = -1;      // as the shell reports it: 128 + signal when a signal ended it; -1 when it timed out
  bool timed_out = false;  // it and all its children were killed
  std::string out;
  std::string err;
};

struct CommandOptions {
  double timeout_seconds = 60;
  std::string working_directory;                   // empty: the caller's
  std::map<std::string, std::string> environment;  // added to, or in place of, the caller's
};

// command: a line for /bin/sh. stdin is empty.
CommandResult run_command(const std::string& command, const CommandOptions& options = {});

}  // namespace tessera::test
