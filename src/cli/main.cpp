// The binary: finds the subcommand, turns errors into one line and an exit code (2: usage and input, 1:
// failure).
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/hints.h"

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
  fmt::print(out,
             "\nexamples:\n"
             "  weir info model.gguf                     what the file is, and whether weir can run it\n"
             "  weir plan -m model.gguf --memory 3GiB    how that budget would be spent\n"
             "  weir run -m model.gguf --memory 3GiB -p \"The river\" -n 64\n"
             "\nweir help COMMAND lists the options of a command, weir --version prints the version\n");
}

/// One line on stderr whatever the message quotes; nothing is thrown where stderr is gone.
int complain(const std::string& message, int code) {
  std::fputs(("weir: error: " + weir::printable(message) + "\n").c_str(), stderr);
  return code;
}

/// What is wrong with a first word that is no command.
std::string unknown(const std::string& name) {
  const bool file = name.size() > 5 && name.ends_with(".gguf");
  if (name.starts_with("-") || file)
    return fmt::format(
        "{} stands before a command: the command comes first, as in weir run {} (weir --help lists them)",
        weir::quote(name), file ? name : "-m FILE");
  if (const std::string hint = weir::cli::command_hint(name); !hint.empty())
    return fmt::format("unknown command {}: {} (weir --help lists the commands)", weir::quote(name), hint);
  std::vector<std::string> names;
  for (const auto& c : commands) names.emplace_back(c.name);
  const std::string meant = weir::cli::nearest(name, names);
  return fmt::format("unknown command {}{} (weir --help lists them)", weir::quote(name),
                     meant.empty() ? "" : fmt::format(": did you mean weir {}?", meant));
}

int dispatch(int argc, char** argv) {
  if (argc < 2) {
    usage(stderr);
    return 2;
  }
  std::string name = argv[1];
  Arguments arguments(argv + 2, argv + argc);
  if (name == "--help" || name == "-h" || name == "help") {
    if (arguments.empty()) {
      usage(stdout);
      return 0;
    }
    name = arguments[0];
    arguments = {"--help"};
  }
  if (name == "--version") {
    fmt::print("weir {}\n", WEIR_VERSION);
    return 0;
  }
  for (const auto& c : commands)
    if (name == c.name) return c.run(arguments);
  throw weir::input_error("{}", unknown(name));
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
