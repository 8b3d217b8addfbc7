// What the files of rows share, and their functions. Rows are in the order of the documentation.
#pragma once

#include <vector>

#include "runtime/config/key_table.h"

namespace tessera::config {

// Where a row's value lives: TESSERA_JOB(optimizer.eps), or a member of the items of a list.
// NOLINTNEXTLINE(bugprone-macro-parentheses): a type and a member name take none
#define TESSERA_FIELD(Holder, member) +[](Holder& holder) -> FieldRef { return &holder.member; }
#define TESSERA_JOB(member) TESSERA_FIELD(JobConfig, member)

inline constexpr double kMaxCount = 1e12;        // of steps and what is counted in them
inline constexpr double kMaxRanks = 1e6;         // along one axis: the product of three fits 64 bits
inline constexpr double kMaxBatch = 2147483647;  // sequences
inline constexpr double kMaxFactor = 1e6;        // rates and weights: finite in fp32

std::vector<KeyRow> run_rows();
std::vector<KeyRow> mesh_rows();
std::vector<KeyRow> model_rows();
std::vector<KeyRow> data_rows();
std::vector<KeyRow> batch_rows();
std::vector<KeyRow> precision_rows();
std::vector<KeyRow> fsdp_rows();
std::vector<KeyRow> pipeline_rows();
std::vector<KeyRow> optimizer_rows();
std::vector<KeyRow> schedule_rows();
std::vector<KeyRow> loss_rows();
std::vector<KeyRow> checkpoint_rows();
std::vector<KeyRow> system_rows();

}  // namespace tessera::config
