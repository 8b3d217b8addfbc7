// The one global: a logger. Messages go to logs/rank-RRRRR.log once open_file() was called (and those said since set_identity(), the first
// 1,000: how a run starts is worth reading); warnings and errors also to stderr when to_terminal is set (rank 0). stdout belongs to the terminal reporter, never to the log.
#pragma once

#include <string>
#include <string_view>

namespace tessera::log {

// Where messages of this process come from; printed in front of each line: "[rank 3/8 hostA]".
void set_identity(int world_rank, int world_size, std::string host);
std::string identity();
void open_file(const std::string& path);
// Which processes may print warnings to stderr. Default true; ranks other than 0 set false.
void set_terminal(bool enabled);

void debug(std::string_view message);
void info(std::string_view message);
void warn(std::string_view message);
void error(std::string_view message);
void flush();
// Flushes and closes the file.
void close();

}  // namespace tessera::log
