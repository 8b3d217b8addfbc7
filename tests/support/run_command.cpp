#include "tests/support/run_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <stdexcept>

namespace tessera::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
  int read_end = -1;
  int write_end = -1;

  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void close_read() { close_one(read_end); }
  void close_write() { close_one(write_end); }

 private:
  static void close_one(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }
};

[[noreturn]] void become(const std::string& command, const CommandOptions& options, const Pipe& out, const Pipe& err) {
  setpgid(0, 0);  // a group of its own, so that a timeout reaches the children too
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(out.write_end, STDOUT_FILENO);
  dup2(err.write_end, STDERR_FILENO);
  if (!options.working_directory.empty() && chdir(options.working_directory.c_str()) != 0) _exit(127);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
  _exit(127);
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left) + 1;
}

// Reads both pipes until both are closed or time is up; false when time was up.
bool read_all(Pipe& out, Pipe& err, CommandResult& result, Clock::time_point deadline) {
  while (out.read_end >= 0 || err.read_end >= 0) {
    std::array<pollfd, 2> ends{pollfd{out.read_end, POLLIN, 0}, pollfd{err.read_end, POLLIN, 0}};
    const int ready = poll(ends.data(), ends.size(), milliseconds_until(deadline));
    if (ready == 0 && Clock::now() >= deadline) return false;
    const auto read_some = [](const pollfd& end, Pipe& pipe, std::string& text) {
      if (end.fd < 0 || end.revents == 0) return;
      std::array<char, 65536> chunk;
      const ssize_t got = read(end.fd, chunk.data(), chunk.size());
      if (got > 0) {
        text.append(chunk.data(), static_cast<std::size_t>(got));
      } else if (got == 0 || errno != EINTR) {
        pipe.close_read();
      }
    };
    read_some(ends[0], out, result.out);
    read_some(ends[1], err, result.err);
  }
  return true;
}

}  // namespace

CommandResult run_command(const std::string& command, const CommandOptions& options) {
  CommandResult result;
  Pipe out;
  Pipe err;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(options.timeout_seconds));
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) become(command, options, out, err);
  setpgid(child, child);
  out.close_write();
  err.close_write();

  bool in_time = read_all(out, err, result, deadline);
  int status = 0;
  while (in_time && waitpid(child, &status, WNOHANG) == 0) {
    in_time = Clock::now() < deadline;
    usleep(1000);
  }
  if (!in_time) {
    result.timed_out = true;
    kill(-child, SIGKILL);
    waitpid(child, &status, 0);
    const auto grace = Clock::now() + std::chrono::seconds(2);
    read_all(out, err, result, grace);
    return result;
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace tessera::test
