#include "parallel/mpi/mpi_handle.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "runtime/base/error.h"

namespace tessera::mpi {

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw CollectiveError(fmt::format("{}: {}", call, std::string_view(text.data(), static_cast<std::size_t>(length))));
}

CommHandle::CommHandle(MPI_Comm comm) : comm_(comm) {
  if (comm_ != MPI_COMM_NULL) MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

CommHandle::~CommHandle() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (comm_ != MPI_COMM_NULL && finalized == 0) MPI_Comm_free(&comm_);
}

}  // namespace tessera::mpi
