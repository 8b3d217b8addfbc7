// The few types of error Tessera knows, and the exit code each ends the process with.
//
// What a user can cause is a ConfigError, DataError, CollectiveError, CheckpointError or DeviceError; what a user
// cannot cause is an InternalError. A message is one line: "where: what, both values", with an optional hint.
#pragma once

#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera {

enum class ExitCode : int {
  kDone = 0,
  kUsage = 2,
  kData = 3,
  kCollective = 4,
  kCheckpoint = 5,
  kDevice = 6,
  kNonFinite = 7,
  kInternal = 70,
  kStopped = 75,          // stopped on request after saving
  kStoppedUnsaved = 130,  // stopped on request without saving
};

class Error : public std::runtime_error {
 public:
  ExitCode exit_code() const { return exit_code_; }
  const std::string& hint() const { return hint_; }
  const std::source_location& where() const { return where_; }
  // "message; hint: hint", or the message alone; each note is one line more.
  std::string line() const;
  // What whoever lets the error pass can add to it: a line of its own.
  void add_note(std::string_view note);

 protected:
  Error(ExitCode code, std::string message, std::string hint, std::source_location where)
      : std::runtime_error(std::move(message)), exit_code_(code), hint_(std::move(hint)), where_(where) {}

 private:
  ExitCode exit_code_;
  std::string hint_, notes_;
  std::source_location where_;
};

#define TESSERA_ERROR_TYPE(Name, Code)                                          \
  class Name final : public Error {                                             \
   public:                                                                      \
    explicit Name(std::string message, std::string hint = {},                   \
                  std::source_location where = std::source_location::current()) \
        : Error(ExitCode::Code, std::move(message), std::move(hint), where) {}  \
  };

TESSERA_ERROR_TYPE(ConfigError, kUsage)
TESSERA_ERROR_TYPE(DataError, kData)
TESSERA_ERROR_TYPE(CheckpointError, kCheckpoint)
TESSERA_ERROR_TYPE(DeviceError, kDevice)
TESSERA_ERROR_TYPE(NonFiniteError, kNonFinite)
TESSERA_ERROR_TYPE(InternalError, kInternal)
#undef TESSERA_ERROR_TYPE

// By what means a wrong program or a lost rank was noticed.
enum class FoundBy : std::uint8_t {
  kError,           // an error that came by itself
  kProgramCheck,    // the call was not the program's next one
  kFingerprint,     // members made different calls, seen before the data was used
  kHistory,         // … seen when histories were compared
  kTimeout,         // a peer did not come
  kDeadPeer,        // a peer's process is gone
  kAgreedDecision,  // the decision that ranks take together once a step
  kTeardown,        // peers did not leave together
};
// "the fingerprint", "the time-out", …
std::string_view name_of(FoundBy means);

class CollectiveError final : public Error {
 public:
  explicit CollectiveError(std::string message, std::string hint = {}, FoundBy found_by = FoundBy::kError,
                           std::source_location where = std::source_location::current())
      : Error(ExitCode::kCollective, std::move(message), std::move(hint), where), found_by_(found_by) {}
  FoundBy found_by() const { return found_by_; }

 private:
  FoundBy found_by_;
};

// Throws InternalError naming the caller's place: for what no input can cause.
void require(bool condition, std::string_view what, std::source_location where = std::source_location::current());

}  // namespace tessera
