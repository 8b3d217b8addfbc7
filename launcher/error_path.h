// The one way an error leaves the program: one line on stderr, once, and the exit code of its type.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "runtime/base/error.h"

namespace tessera {

// An error as it is shown and sent to other ranks: "message; hint: hint" and the exit code it asks for.
struct ErrorInfo {
  ExitCode code = ExitCode::kInternal;
  std::string line;
  friend bool operator==(const ErrorInfo&, const ErrorInfo&) = default;
};

// Error: its line and code. Anything else that was thrown is an internal error (70).
ErrorInfo describe(const std::exception_ptr& error);

// Writes the line to stderr in one piece, behind "[rank r/N host]" where this process is a rank. A message of several
// lines (all problems of a config) keeps its lines; each gets the prefix.
void print_error(const ErrorInfo& error);

// Runs body and returns its exit code; an exception is printed and becomes its own. For programs without ranks; see
// rank_guard.h.
int run_guarded(const std::function<int()>& body);

}  // namespace tessera
