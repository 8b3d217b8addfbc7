// The names in a run's checkpoints folder (docs/checkpoint-format.md), and moving between them. Only complete checkpoints bear the name of a
// step; everything else begins with a dot.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file_system.h"

namespace tessera {

std::string step_folder_name(std::int64_t step);                         // "step-00000120"
std::string saving_folder_name(std::int64_t step, std::uint64_t nonce);  // ".saving-00000120-5f0c2e6a91d4b7c3"
std::optional<std::int64_t> step_of_folder(std::string_view name);       // of "step-…"
std::optional<std::int64_t> step_of_unfinished(std::string_view name);   // of ".saving-…"

// A number that no other folder has: what keeps names of different attempts apart.
std::uint64_t make_nonce();

// Steps that have a folder, ascending, whatever it holds; none where `directory` does not exist.
std::vector<std::int64_t> list_steps(FileSystem& files, const std::string& directory);

// Removes what saves and deletions of dead runs left behind, and returns the names. Only for the owner of the run directory, before its first
// save.
std::vector<std::string> remove_leftovers(FileSystem& files, const std::string& directory);

// Takes the name of a step from its folder, which stays as ".set-aside-…"; returns the new name. For what a resume passed over: the run will
// reach the step again.
std::string set_aside(FileSystem& files, const std::string& directory, std::int64_t step);

// Deletes checkpoints: none is ever found half deleted under a step's name, wherever the process ends.
void delete_checkpoints(FileSystem& files, const std::string& directory, const std::vector<std::int64_t>& steps);

}  // namespace tessera
