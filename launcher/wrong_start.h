// Processes that a launcher started as one job, but that MPI would each see as a job of one: every one would be rank 0
// of 1, and all would write to the same run directory. Found from the environment, before MPI_Init.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace tessera {

struct WrongStart {
  bool first = true;  // task 0: the one that prints
  std::string line;   // "launch: 8 tasks but no PMIx; hint: …"
};

// lookup: the value of an environment variable, or null. nullopt where the start is in order.
std::optional<WrongStart> find_wrong_start(const std::function<const char*(const char*)>& lookup);
// With this process's environment.
std::optional<WrongStart> find_wrong_start();

// Whether this process is the first of the tasks that a launcher started, or alone: what all of them would say, it says. Known before MPI_Init.
bool is_first_task(const std::function<const char*(const char*)>& lookup);
bool is_first_task();

}  // namespace tessera
