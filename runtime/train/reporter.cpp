#include "runtime/train/reporter.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/math.h"

namespace tessera {

using nlohmann::ordered_json;

std::string format_bytes(std::int64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes >= 1LL << 30) return fmt::format("{:.2f} GiB", value / static_cast<double>(1LL << 30));
  if (bytes >= 1LL << 20) return fmt::format("{:.0f} MiB", value / static_cast<double>(1LL << 20));
  return fmt::format("{:.0f} KiB", value / 1024.0);
}

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count < 0 ? -count : count);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return count < 0 ? "-" + digits : digits;
}

std::string format_seconds(double seconds) {
  if (seconds < 10) return fmt::format("{:.0f} ms", seconds * 1e3);
  return fmt::format("{:.1f} s", seconds);
}

std::string format_eta(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m", (whole + 30) / 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
}

Reporter::Reporter(const std::string& metrics_path, ProgressMode progress, std::int64_t num_steps)
    : path_(metrics_path), progress_(progress), num_steps_(num_steps) {
  if (path_.empty()) return;
  metrics_ = std::fopen(path_.c_str(), "a");
  if (metrics_ == nullptr) throw DeviceError(fmt::format("{}: {}", path_, std::strerror(errno)));
}

Reporter::~Reporter() {
  if (bar_open_) std::fputc('\n', stdout);
  if (metrics_ != nullptr) std::fclose(metrics_);
}

void Reporter::write(const std::string& line) {
  // A whole line at a time, so that a reader never sees half of one.
  if (std::fwrite(line.data(), 1, line.size(), metrics_) != line.size() || std::fflush(metrics_) != 0) {
    throw DeviceError(fmt::format("{}: {}", path_, std::strerror(errno)));
  }
}

void Reporter::start(std::int64_t step, const std::string& state_hash) {
  if (metrics_ == nullptr) return;
  write(ordered_json{{"kind", "start"}, {"step", step}, {"time", unix_seconds()}, {"state_hash", state_hash}}.dump() +
        "\n");
}

void Reporter::step(const StepMetrics& m) {
  if (metrics_ == nullptr) return;
  ordered_json json = {{"step", m.step},
                       {"time", unix_seconds()},
                       {"loss", m.loss},
                       {"max_loss", m.max_loss},
                       {"learning_rate", m.learning_rate},
                       {"grad_norm", m.grad_norm},
                       {"tokens", m.tokens},
                       {"tokens_seen", m.tokens_seen},
                       {"epoch", m.epoch},
                       {"tokens_per_second", m.tokens_per_second},
                       {"step_seconds", m.step_seconds},
                       {"data_seconds", m.data_seconds},
                       {"tflops", m.tflops},
                       {"mfu", nullptr},  // the peak of a CPU is not known; bench train measures one
                       {"memory_allocated_peak", m.memory_allocated_peak},
                       {"memory_reserved_peak", m.memory_reserved_peak},
                       {"loss_scale", 1.0},
                       {"skipped_steps", m.skipped_steps}};
  if (!m.state_hash.empty()) json["state_hash"] = m.state_hash;
  write(json.dump() + "\n");
  if (progress_ == ProgressMode::kQuiet) return;
  const int width = static_cast<int>(std::to_string(num_steps_).size());
  const std::string line =
      fmt::format("step {:>{}}/{} | loss {:.4f} | norm {:.2f} | lr {:.1e} | {} | {} tok/s | mem {} | eta {}", m.step,
                  width, num_steps_, m.loss, m.grad_norm, m.learning_rate, format_seconds(m.step_seconds),
                  format_count(static_cast<std::int64_t>(m.tokens_per_second)), format_bytes(m.memory_allocated_peak),
                  format_eta(m.step_seconds * static_cast<double>(num_steps_ - m.step)));
  if (progress_ == ProgressMode::kPlain) {
    std::fputs((line + "\n").c_str(), stdout);
  } else {
    constexpr int kCells = 20;
    const int filled = num_steps_ > 0 ? static_cast<int>(kCells * m.step / num_steps_) : kCells;
    std::string bar;
    for (int cell = 0; cell < kCells; ++cell) bar += cell < filled ? "█" : "░";
    std::fputs(("\r\x1b[K" + bar + " " + line).c_str(), stdout);
    bar_open_ = true;
  }
  std::fflush(stdout);
}

void Reporter::skip(std::int64_t step, const std::vector<int>& world_ranks) {
  if (metrics_ == nullptr) return;
  write(ordered_json{{"kind", "skip"}, {"step", step}, {"time", unix_seconds()}, {"ranks", world_ranks}}.dump() + "\n");
  print(fmt::format("step {} skipped: loss or gradient not finite on rank {}", step, fmt::join(world_ranks, ", ")));
}

void Reporter::validation(std::int64_t step, double loss) {
  if (metrics_ == nullptr) return;
  const ordered_json json = {{"kind", "validation"},
                             {"step", step},
                             {"time", unix_seconds()},
                             {"validation_loss", loss},
                             {"validation_perplexity", math::exp(loss)}};
  const std::string text = fmt::format("validation after step {}: loss {:.4f}", step, loss);
  write(json.dump() + "\n");
  print(text);
}

void Reporter::print(const std::string& text) {
  if (metrics_ == nullptr || progress_ == ProgressMode::kQuiet) return;
  std::string shown = bar_open_ ? "\n" : "";
  for (const char c : text) {  // a sample may hold any byte: none of them commands the terminal
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += c;
    }
  }
  shown += '\n';
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  bar_open_ = false;
  std::fflush(stdout);
}

void Reporter::flush() {
  if (metrics_ != nullptr) std::fflush(metrics_);
}

}  // namespace tessera
