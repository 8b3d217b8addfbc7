// An MPI program that does nothing: the baseline of `tessera bench startup`.
#include <mpi.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Finalize();
  return 0;
}
