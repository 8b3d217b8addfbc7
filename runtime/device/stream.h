// Streams, events and the views through which everything asynchronous is addressed. No default stream exists.
//
// CPU: the compute stream is inline (enqueue runs the work on the caller's thread before it returns; wait() blocks the
// caller); communication streams run their queue in order on a thread of their own. An exception thrown by queued work
// poisons the stream: later work is dropped, and the exception is rethrown by synchronize() of the stream or of an
// event recorded after it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tessera {

class Device;

// A point in a stream's order. Copyable handle; a default-constructed event is complete.
class Event {
 public:
  struct State;
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}

  bool query() const;        // the point was passed (also after a failure)
  void synchronize() const;  // blocks the host; rethrows the failure of the stream, if any
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// What a backend implements.
class StreamImpl {
 public:
  virtual ~StreamImpl() = default;
  virtual Device& device() const = 0;
  virtual std::string_view name() const = 0;
  virtual void enqueue(std::function<void()> work) = 0;
  virtual Event record() = 0;
  virtual void wait(const Event& event) = 0;
  virtual void synchronize() = 0;
};

// Non-owning; cheap to copy; what functions take.
class StreamView {
 public:
  explicit StreamView(StreamImpl* impl) : impl_(impl) {}

  Device& device() const { return impl_->device(); }
  std::string_view name() const { return impl_->name(); }
  void enqueue(std::function<void()> work) const { impl_->enqueue(std::move(work)); }
  // Completes when all work enqueued so far is done.
  Event record() const { return impl_->record(); }
  // Orders later work of this stream after the event; does not block the host (but an inline stream is the host).
  void wait(const Event& event) const { impl_->wait(event); }
  // Blocks the host until the stream is empty; rethrows a failure.
  void synchronize() const { impl_->synchronize(); }
  StreamImpl* impl() const { return impl_; }
  friend bool operator==(StreamView, StreamView) = default;

 private:
  StreamImpl* impl_;
};

// Owner. The destructor drains the queue, joins the thread and never throws.
class Stream {
 public:
  Stream() = default;
  explicit Stream(std::unique_ptr<StreamImpl> impl) : impl_(std::move(impl)) {}
  StreamView view() const { return StreamView(impl_.get()); }

 private:
  std::unique_ptr<StreamImpl> impl_;
};

}  // namespace tessera
