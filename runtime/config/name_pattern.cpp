#include "runtime/config/name_pattern.h"

#include <re2/re2.h>

#include "runtime/base/error.h"

namespace tessera::config {
namespace {

constexpr std::size_t kMaxLength = 256;

}  // namespace

struct NamePattern::State {
  explicit State(const std::string& expression) : compiled(expression, RE2::Quiet) {}
  RE2 compiled;
};

NamePattern::NamePattern(const std::string& expression) {
  if (expression.size() > kMaxLength) {
    problem_ = "longer than 256 bytes";
    return;
  }
  state_ = std::make_unique<State>(expression);
  if (!state_->compiled.ok()) problem_ = state_->compiled.error();
}

NamePattern::~NamePattern() = default;
NamePattern::NamePattern(NamePattern&&) noexcept = default;
NamePattern& NamePattern::operator=(NamePattern&&) noexcept = default;

bool NamePattern::matches(const std::string& name) const {
  require(problem_.empty(), "a pattern that cannot be used was to match");
  return RE2::PartialMatch(name, state_->compiled);
}

}  // namespace tessera::config
