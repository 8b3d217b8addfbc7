// The faults of `chaos`: what they are called and what each takes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::config {

struct FaultKind {
  enum class Seconds : std::uint8_t { kNone, kOptional, kRequired };

  std::string_view name;
  // Of a collective fault: the kinds of call that it can make wrong. Empty: a fault of the process.
  std::vector<std::string_view> ops = {};
  Seconds seconds = Seconds::kNone;
  bool in_save = false;  // happens while a checkpoint is written, or to it; such a fault acts in the save of its step
};

const std::vector<FaultKind>& fault_kinds();
// InternalError for a name that no loader lets pass.
const FaultKind& fault_kind(std::string_view name);
bool takes_op(const FaultKind& kind, std::string_view op);

std::vector<std::string_view> fault_names();

}  // namespace tessera::config
