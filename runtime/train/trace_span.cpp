#include "runtime/train/trace_span.h"

namespace tessera {

std::string_view name_of(TraceClass trace_class) {
  switch (trace_class) {
    case TraceClass::kWindow: return "step";
    case TraceClass::kCompute: return "compute";
    case TraceClass::kCommunication: return "communication";
    case TraceClass::kWait: return "wait";
    case TraceClass::kData: return "data";
    case TraceClass::kHost: return "host";
  }
  return "?";
}

}  // namespace tessera
