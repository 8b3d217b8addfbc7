#include "runtime/program/matching.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "runtime/base/rank_text.h"

namespace tessera {
namespace {

// What must be equal. Names, not indices: programs of one group may number their units differently.
using CallKey = std::tuple<OpCode, std::string_view, std::string_view, int, std::string_view, bool>;

CallKey key_of(const StepProgram& program, const Instruction& call) {
  const auto name = [](const std::vector<std::string>& names, int index) -> std::string_view {
    return index < 0 ? std::string_view() : names[index];
  };
  return {call.op,
          name(program.unit_names, call.unit),
          name(program.segment_names, call.segment),
          call.micro_batch,
          call.phase,
          call.accumulate};
}

// Numbers equal values equally, so that comparing them is comparing two integers.
template <typename T>
class Interner {
 public:
  int id_of(T value) {
    const int next = static_cast<int>(ids_.size());
    return ids_.try_emplace(std::move(value), next).first->second;
  }

 private:
  std::map<T, int> ids_;
};

// The calls of a class on a channel, as numbers, and a number for the whole of them. Classes are few: ranks are compared
// by the number of their class.
struct Sequence {
  int id = 0;
  std::vector<int> calls;
};
using Sequences = std::vector<std::vector<Sequence>>;  // by class, by channel

Sequences number_calls(const std::vector<IndexedProgram>& programs) {
  Interner<CallKey> calls;
  Interner<std::vector<int>> wholes;
  Sequences sequences;
  for (const IndexedProgram& program : programs) {
    std::vector<Sequence>& of_class = sequences.emplace_back();
    for (const std::vector<int>& instructions : program.calls) {
      Sequence& sequence = of_class.emplace_back();
      for (const int i : instructions) sequence.calls.push_back(calls.id_of(key_of(*program.source, program.at(i))));
      sequence.id = wholes.id_of(sequence.calls);
    }
  }
  return sequences;
}

int first_difference(const std::vector<int>& a, const std::vector<int>& b) {
  const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return static_cast<int>(at - a.begin());
}

struct Mismatch {
  int group = 0;
  Channel channel = 0;
  int place = 0;  // of the first call that differs
};

// The members that make one call, or no more calls.
struct Side {
  int rank = 0;  // one of them
  std::vector<int> ranks;
};

class Matcher {
 public:
  explicit Matcher(const ProofJob& job) : job_(job), sequences_(number_calls(job.programs)) {}

  std::optional<Mismatch> find() const {
    std::optional<Mismatch> earliest;
    for (int group = 0; group < static_cast<int>(job_.group_names.size()); ++group) {
      for (int stream = 0; stream < kNumStreams; ++stream) {
        const Channel channel = channel_of(job_.group_axes[group], static_cast<StreamId>(stream));
        const std::optional<int> place = find(job_.ranks.members[group], channel);
        if (place && (!earliest || *place < earliest->place)) earliest = Mismatch{group, channel, *place};
      }
    }
    return earliest;
  }

  std::string text(const Mismatch& mismatch) const {
    const std::vector<Side> sides = sides_of(mismatch);
    if (sides.size() == 2) {
      for (const auto& [more, fewer] : {std::pair(sides[0], sides[1]), std::pair(sides[1], sides[0])}) {
        if (calls_left(mismatch, fewer.rank) == 0) return lone_calls_text(mismatch, more, fewer);
      }
    }
    std::vector<std::string> texts;
    texts.reserve(sides.size());
    for (const Side& side : sides) {
      texts.push_back(fmt::format("{} {} {}", text_of_ranks(side.ranks), verb("make", side),
                                  calls_left(mismatch, side.rank) == 0 ? "none" : call_text_at(mismatch, side.rank)));
    }
    const std::string& group = job_.group_names[mismatch.group];
    return fmt::format("{}: {}", place_text(mismatch.place, group, stream_of(mismatch.channel)),
                       fmt::join(texts, ", "));
  }

 private:
  const Sequence& sequence(int rank, Channel channel) const { return sequences_[job_.ranks.class_of[rank]][channel]; }

  // The place of the first call on which not all members agree.
  std::optional<int> find(const std::vector<int>& members, Channel channel) const {
    std::optional<int> earliest;
    const Sequence* compared = nullptr;  // members of one class mostly stand together
    for (const int rank : members) {
      const Sequence& first = sequence(members.front(), channel);
      const Sequence& other = sequence(rank, channel);
      if (other.id == first.id || &other == compared) continue;
      compared = &other;
      const int place = first_difference(first.calls, other.calls);
      if (!earliest || place < *earliest) earliest = place;
    }
    return earliest;
  }

  int calls_left(const Mismatch& mismatch, int rank) const {
    return static_cast<int>(sequence(rank, mismatch.channel).calls.size()) - mismatch.place;
  }

  // In order of their lowest rank.
  std::vector<Side> sides_of(const Mismatch& mismatch) const {
    std::vector<int> members = job_.ranks.members[mismatch.group];
    std::sort(members.begin(), members.end());
    std::vector<Side> sides;
    std::map<int, std::size_t> side_of_call;  // -1: no more calls
    for (const int rank : members) {
      const int call = calls_left(mismatch, rank) == 0 ? -1 : sequence(rank, mismatch.channel).calls[mismatch.place];
      const auto [found, fresh] = side_of_call.try_emplace(call, sides.size());
      if (fresh) sides.push_back({rank, {}});
      sides[found->second].ranks.push_back(rank);
    }
    return sides;
  }

  static std::string verb(const char* plural, const Side& side) {
    return fmt::format("{}{}", plural, side.ranks.size() == 1 ? "s" : "");
  }

  std::string call_text_at(const Mismatch& mismatch, int rank) const {
    const IndexedProgram& program = job_.programs[job_.ranks.class_of[rank]];
    return call_text(*program.source, program.at(program.calls[mismatch.channel][mismatch.place]));
  }

  std::string lone_calls_text(const Mismatch& mismatch, const Side& more, const Side& fewer) const {
    const bool one =
        std::all_of(more.ranks.begin(), more.ranks.end(), [&](int rank) { return calls_left(mismatch, rank) == 1; });
    return fmt::format("{}/{}: {} {} {} {} as call {}, which {} never {}", job_.group_names[mismatch.group],
                       name_of(stream_of(mismatch.channel)), text_of_ranks(more.ranks), verb("make", more),
                       one ? "one call more," : "more calls, first", call_text_at(mismatch, more.rank), mismatch.place,
                       text_of_ranks(fewer.ranks), verb("make", fewer));
  }

  const ProofJob& job_;
  Sequences sequences_;
};

}  // namespace

std::optional<std::string> find_mismatch(const ProofJob& job) {
  const Matcher matcher(job);
  const std::optional<Mismatch> mismatch = matcher.find();
  if (!mismatch) return std::nullopt;
  return matcher.text(*mismatch);
}

}  // namespace tessera
