// Times the instructions and the collective calls of one rank, in the steps that the job asks for.
//
// A thread has a list of its own and takes no lock: the host's thread writes the compute stream's, the thread of a
// communication stream that stream's. Lists are read once the streams are idle.
//
// Memory: some 300 bytes a span. Past kMaxSpans no further step begins to be recorded (a step is recorded whole or not at
// all), so a rank holds kMaxSpans and one step more, until the spans are taken and written.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/communicator.h"
#include "runtime/config/job_config.h"
#include "runtime/train/trace_span.h"

namespace tessera {

class TraceRecorder final : public CallRecorder {
 public:
  static constexpr std::size_t kMaxSpans = std::size_t{1} << 18;

  explicit TraceRecorder(StepRange steps, std::size_t max_spans = kMaxSpans);

  const StepRange& steps() const { return steps_; }
  // Whether a step of the range was attempted: equal on all ranks, whatever each had room for.
  bool reached() const { return last_step_ > 0; }
  // Whether the last step of the range has been attempted.
  bool complete() const { return last_step_ >= steps_.last && !recording_; }
  // Steps of the range that found no room.
  std::int64_t num_dropped() const { return num_dropped_; }
  // Gives the spans away, by thread and then in order of time, a span before those it encloses. Ends the window where one
  // is open. While all streams are idle.
  std::vector<TraceSpan> take();

  // The rest is for the host's thread, and does nothing outside the range.

  // A window opens: an update is attempted (of attempts with one number, the first is recorded), or an evaluation begins
  // between two steps of the range. Everything up to end_window() belongs to it.
  void begin_step(std::int64_t step);
  void begin_evaluation(std::int64_t step);
  void end_window();

  // An instruction begins, as a span of the class that it starts with; it goes on as a span of another class; it ends.
  void begin(const StepProgram& program, const Instruction& instruction);
  void enter(TraceClass trace_class);
  void end();
  // The same for the loading of a batch.
  void begin_data();

  bool wants_calls() const override { return recording_; }
  void on_finished(const TimedCall& call) override;

 private:
  void open_window(std::string name, std::string phase, std::int64_t step);
  std::vector<TraceSpan>& spans_of(StreamId stream) { return spans_[static_cast<std::size_t>(stream)]; }
  bool has_room() const;

  StepRange steps_;
  std::size_t max_spans_;
  std::array<std::vector<TraceSpan>, 4> spans_;  // by StreamId
  // Host thread:
  bool recording_ = false;
  TraceSpan window_, open_;
  std::string text_, awaited_;  // of the current instruction: its name, and that of its spans of class kWait
  std::int64_t last_step_ = 0, num_dropped_ = 0;
};

}  // namespace tessera
