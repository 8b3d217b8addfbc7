#include "launcher/error_path.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <new>
#include <sstream>

#include "runtime/base/log.h"

namespace tessera {

ErrorInfo describe(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return {known.exit_code(), known.line()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::kDevice, "memory: the host has no more; hint: a smaller batch.micro_batch_size, or more ranks"};
  } catch (const std::exception& other) {
    return {ExitCode::kInternal, fmt::format("internal: {}", other.what())};
  } catch (...) {
    return {ExitCode::kInternal, "internal: something that is no exception was thrown"};
  }
}

void print_error(const ErrorInfo& error) {
  const std::string identity = log::identity();
  std::string text;
  std::istringstream lines(error.line);
  for (std::string line; std::getline(lines, line);) {
    text += identity.empty() ? fmt::format("{}\n", line) : fmt::format("{} {}\n", identity, line);
  }
  // One write: ranks share the terminal, and a line must not be cut by another's.
  std::fflush(stdout);
  std::fflush(stderr);
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
}

int run_guarded(const std::function<int()>& body) {
  try {
    return body();
  } catch (...) {
    const ErrorInfo info = describe(std::current_exception());
    print_error(info);
    return static_cast<int>(info.code);
  }
}

}  // namespace tessera
