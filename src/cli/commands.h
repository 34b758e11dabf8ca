// The subcommands: one file each. Arguments are those after the subcommand's name; the result is the exit
// code.
#pragma once

#include <string>
#include <vector>

namespace weir::cli {

using Arguments = std::vector<std::string>;

int run(const Arguments& arguments);
int info(const Arguments& arguments);
int plan(const Arguments& arguments);
int bench(const Arguments& arguments);
int profile(const Arguments& arguments);
int verify(const Arguments& arguments);
int ab(const Arguments& arguments);
int replay(const Arguments& arguments);
int tokenize(const Arguments& arguments);
int perplexity(const Arguments& arguments);

}  // namespace weir::cli
