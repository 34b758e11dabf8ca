// What to say to a word that no command knows: options of llama.cpp that weir lacks, what other programs call
// its commands, and the nearest name to a typing error. Pure text; knows no option parser.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace weir::cli {

/// Options of llama.cpp that mean one thing, and what weir does about that thing.
struct Hint {
  const char* names;   ///< separated by commas: "-ngl,--gpu-layers,--n-gpu-layers"
  const char* advice;  ///< goes on from "NAME is llama.cpp's: weir "
};
std::span<const Hint> llama_hints();

/// The sentence for an option of llama.cpp ("_" counts as "-", as there); empty for any other word.
std::string option_hint(const std::string& name);
/// The sentence for what other programs call a command; empty for any other word.
std::string command_hint(const std::string& name);

/// Insertions, deletions, replacements and swaps of neighbours that lead from one word to the other.
int edit_distance(const std::string& a, const std::string& b);
/// The candidate that a word was probably meant to be: nearest by edit distance without the dashes, within a
/// third of the word, or one that begins or ends with it. Empty where none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace weir::cli
