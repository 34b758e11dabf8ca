// The binary: finds the subcommand, turns errors into one line and an exit code (2: usage and input, 1:
// failure).
#include <fmt/core.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cli/commands.h"

namespace {

using weir::cli::Arguments;

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const Arguments& arguments);
};

constexpr Command commands[] = {
    {"run", "generate text from a prompt", weir::cli::run},
    {"info", "describe a model file: architecture, tensors by type, what is unsupported", weir::cli::info},
    {"plan", "show where the memory budget would go, without loading", weir::cli::plan},
    {"bench", "measure prompt and decode speed on seeded tokens", weir::cli::bench},
    {"profile", "where the time of decode goes, and what would attack it", weir::cli::profile},
    {"verify", "prove that settings do not change tokens or logits on this machine", weir::cli::verify},
    {"ab", "compare two option sets or commands, with statistics that may refuse", weir::cli::ab},
    {"replay", "hit rates, bytes and waits of a recorded routing for any slots, without the model",
     weir::cli::replay},
    {"tokenize", "text to token ids and pieces", weir::cli::tokenize},
    {"perplexity", "perplexity of a text file", weir::cli::perplexity},
};

void usage(std::FILE* out) {
  fmt::print(out,
             "weir {}: runs sparse mixture-of-experts GGUF models in a fixed memory budget\n\nusage: weir "
             "COMMAND [OPTIONS]\n\n",
             WEIR_VERSION);
  for (const auto& c : commands) fmt::print(out, "  {:<11} {}\n", c.name, c.summary);
  fmt::print(out, "\nweir COMMAND --help lists the options of a command\n");
}

/// One line on stderr whatever the message quotes; nothing is thrown where stderr is gone.
int complain(const std::string& message, int code) {
  std::fputs(("weir: error: " + weir::printable(message) + "\n").c_str(), stderr);
  return code;
}

int dispatch(int argc, char** argv) {
  if (argc < 2) {
    usage(stderr);
    return 2;
  }
  const std::string name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") {
    usage(stdout);
    return 0;
  }
  if (name == "--version") {
    fmt::print("weir {}\n", WEIR_VERSION);
    return 0;
  }
  for (const auto& c : commands)
    if (name == c.name) return c.run(Arguments(argv + 2, argv + argc));
  throw weir::input_error("unknown command \"{}\" (weir --help lists them)", name);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed stdout ends the command through its write error
  weir::clean_up_at_signals();
  try {
    const int code = dispatch(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) return complain("stdout: writing failed", 1);
    return code;
  } catch (const weir::Error& e) {
    // What an interrupt left incomplete is no failure of its own.
    return complain(e.what(), weir::interrupted() ? weir::interrupted_exit_code : e.exit_code());
  } catch (const std::bad_alloc&) {
    return complain("out of memory", 1);
  } catch (const std::exception& e) {
    return complain(e.what(), 1);
  }
}
