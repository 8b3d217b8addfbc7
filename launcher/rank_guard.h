// The error path of a program with ranks: whatever happens, it is said once, nobody hangs, and mpirun gets the right
// code.
#pragma once

#include <exception>
#include <functional>

#include "launcher/mpi_session.h"

namespace tessera {

// Runs body on this rank, ends the session and returns the exit code.
// - body returns: MPI is finalised.
// - AgreedError (every rank has it): printed by its rank alone; all finalise and return its code.
// - anything else: if all ranks failed within the grace the lowest prints and all finalise; otherwise this rank prints
// and aborts the job.
int run_rank(MpiSession& session, const std::function<ExitCode()>& body);

// Ends the job at once for an error of this rank while its streams and communicators still stand: to take them down first would be to wait for
// peers. Says it once, then aborts with its code.
[[noreturn]] void fail_rank(MpiSession& session, const std::exception_ptr& error);

}  // namespace tessera
