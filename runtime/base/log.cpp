#include "runtime/base/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace tessera::log {
namespace {

constexpr std::size_t kMaxEarly = 1000;

// The sinks lock themselves; the mutex guards what is exchanged: the identity and the sinks.
struct Global {
  std::mutex mutex;
  std::string identity;
  bool terminal_enabled = true;
  std::shared_ptr<spdlog::sinks::sink> terminal = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  std::shared_ptr<spdlog::sinks::sink> file;
  // What was said before the file was there, with its time: a run's start is worth reading too.
  struct Early {
    spdlog::log_clock::time_point time;
    spdlog::level::level_enum level;
    std::string text;
  };
  bool keep_early = false;
  std::vector<Early> early;

  Global() { terminal->set_pattern("%v"); }
};

Global& global() {
  static auto* instance = new Global;  // never destroyed: threads may still log while the process exits
  return *instance;
}

void write(spdlog::sinks::sink& sink, spdlog::level::level_enum level, const std::string& text) {
  sink.log(spdlog::details::log_msg("tessera", level, text));
  sink.flush();
}

void message(spdlog::level::level_enum level, std::string_view text) {
  std::shared_ptr<spdlog::sinks::sink> file;
  std::shared_ptr<spdlog::sinks::sink> terminal;
  std::string prefix;
  {
    const std::lock_guard lock(global().mutex);
    file = global().file;
    if (global().terminal_enabled && level >= spdlog::level::warn) terminal = global().terminal;
    prefix = global().identity;
    if (!prefix.empty()) prefix += ' ';
    if (!file && global().keep_early && global().early.size() < kMaxEarly) {
      global().early.push_back({spdlog::log_clock::now(), level, fmt::format("{}{}", prefix, text)});
    }
    if (!file && !terminal) return;
  }
  try {
    if (file) write(*file, level, fmt::format("{}{}", prefix, text));
    if (terminal) {
      const std::string_view kind = level >= spdlog::level::err ? "error" : "warning";
      write(*terminal, level, fmt::format("{}{}: {}", prefix, kind, text));
    }
  } catch (const std::exception&) {
    // A full disk must not end a training run through its log.
  }
}

}  // namespace

void set_identity(int world_rank, int world_size, std::string host) {
  const std::lock_guard lock(global().mutex);
  global().identity = fmt::format("[rank {}/{} {}]", world_rank, world_size, host);
  global().keep_early = true;
  global().early.clear();
}

std::string identity() {
  const std::lock_guard lock(global().mutex);
  return global().identity;
}

void open_file(const std::string& path) {
  std::shared_ptr<spdlog::sinks::sink> file;
  try {
    file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path, /*truncate=*/false);
  } catch (const spdlog::spdlog_ex& failure) {
    throw ConfigError(fmt::format("log file {}: cannot be opened: {}", path, failure.what()),
                      "the run directory must be writable");
  }
  file->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  const std::lock_guard lock(global().mutex);
  for (const Global::Early& message : global().early) {
    spdlog::details::log_msg record("tessera", message.level, message.text);
    record.time = message.time;
    file->log(record);
  }
  file->flush();
  global().early.clear();
  global().keep_early = false;
  global().file = std::move(file);
}

void set_terminal(bool enabled) {
  const std::lock_guard lock(global().mutex);
  global().terminal_enabled = enabled;
}

void debug(std::string_view text) {
  message(spdlog::level::debug, text);
}
void info(std::string_view text) {
  message(spdlog::level::info, text);
}
void warn(std::string_view text) {
  message(spdlog::level::warn, text);
}
void error(std::string_view text) {
  message(spdlog::level::err, text);
}

namespace {

// A log that cannot be written must not replace the error it is about.
void flush_file() noexcept {
  try {
    if (global().file) global().file->flush();
  } catch (...) {
  }
}

}  // namespace

void flush() {
  const std::lock_guard lock(global().mutex);
  flush_file();
}

void close() {
  const std::lock_guard lock(global().mutex);
  flush_file();
  global().file.reset();
}

}  // namespace tessera::log
