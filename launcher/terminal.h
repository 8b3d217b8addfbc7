// Where a launcher speaks: beside mpirun, which passes on what ranks write to the same terminal.
#pragma once

#include <string>

namespace tessera {

// To stderr. Whole lines with their ends, in one write where the terminal takes it: nobody else's come between.
void write_to_terminal(const std::string& lines);

}  // namespace tessera
