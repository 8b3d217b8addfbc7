// How every --help of the program looks: examples first, then usage and options, short enough for one screen.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

// The group of options that work and are completed, and have no line of their own in the help.
inline constexpr const char* kUnlisted = "unlisted";

// Sets the format of help pages and of usage errors for app and the subcommands that are added to it afterwards. A
// command's examples are its footer (App::footer), one a line.
void style_help(CLI::App& app);

// Parses and runs; returns the exit code: what a command set in exit_code, 0 for --help and --version, 2 for a usage
// error, which is one line on stderr. Of the ranks of a job, which all read one command line, only the first prints
// help, version and usage errors. DeviceError where a command succeeded and its output did not reach stdout.
int parse_and_run(CLI::App& app, int argc, char** argv, const int& exit_code);

}  // namespace tessera
