// A regular expression over names of parameters. Matching takes time linear in the name, whatever the expression: a job file is no place for a
// program that may not end.
#pragma once

#include <memory>
#include <string>

namespace tessera::config {

class NamePattern {
 public:
  // RE2's syntax: that of Perl without back references and look-around.
  explicit NamePattern(const std::string& expression);
  ~NamePattern();
  NamePattern(NamePattern&&) noexcept;
  NamePattern& operator=(NamePattern&&) noexcept;

  // Why the expression cannot be used, "" where it can.
  const std::string& problem() const { return problem_; }
  // Whether it is found anywhere in the name.
  bool matches(const std::string& name) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::string problem_;
};

}  // namespace tessera::config
