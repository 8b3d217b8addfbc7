// `tessera generate` of one process: from the options to the text.
#pragma once

#include "launcher/generate_request.h"

namespace tessera {

// Returns the exit code. Collective: every rank of the job calls it; rank 0 writes.
int run_generate_job(const GenerateOptions& options);

}  // namespace tessera
