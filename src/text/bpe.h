// Byte-pair merging of one word: the adjacent pair with the lowest rank is merged first, the leftmost among
// equals, until no pair has a rank. O(n log n) in the bytes of the word. Knows no pre-tokenizer and no
// special tokens.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/vocabulary.h"

namespace weir {

/// Interned texts: symbol ids below the number of tokens are tokens, higher ones are texts that only merges
/// name.
using Symbol = int32_t;

/// (left, right) -> (rank, merged symbol): open addressing with linear probing, at most half full.
class MergeTable {
 public:
  struct Merge {
    int32_t rank;
    Symbol result;
  };
  explicit MergeTable(size_t merges);
  /// The first insertion of a pair stays.
  void insert(Symbol left, Symbol right, Merge merge);
  /// Null where the pair has no rank.
  const Merge* find(Symbol left, Symbol right) const;

 private:
  struct Slot {
    uint64_t pair = empty;
    Merge merge{};
  };
  // Symbols are not negative, so no pair has all bits set.
  static constexpr uint64_t empty = ~uint64_t{0};
  size_t slot_of(uint64_t pair) const;
  std::vector<Slot> slots_;
  int shift_;  ///< 64 - log2(slots)
};

class Bpe {
 public:
  enum class WholeWords {
    merge,
    take
  };  ///< take: a word that is itself a token is not merged (ignore_merges)
  /// `vocabulary` is checked and settled; nothing of it is referred to later. Throws Error (input) naming the
  /// merge that does not split in two.
  Bpe(const Vocabulary& vocabulary, WholeWords whole_words);

  /// Buffers of encode, kept by the caller from word to word.
  struct Scratch {
    struct Part {
      Symbol symbol;  ///< -1 once it was merged into its left neighbour
      int32_t begin;  ///< offset in the word
      int32_t previous, next;
    };
    struct Candidate {
      int32_t rank, left, right;  ///< indices of parts
      Symbol left_symbol, right_symbol, result;
    };
    std::vector<Part> parts;
    std::vector<Candidate> heap;
  };
  /// Appends the tokens of `word` (at most 2^31 - 1 bytes). A symbol that is no token is written byte by
  /// byte; a byte that is no token becomes the unknown token, or throws Error (input) where there is none.
  void encode(std::string_view word, Scratch& scratch, std::vector<Token>& tokens) const;

 private:
  void merge(Scratch& scratch) const;
  void propose(Scratch& scratch, int32_t left, int32_t right) const;
  void emit(std::string_view word, Symbol symbol, std::vector<Token>& tokens) const;

  std::string source_;
  Symbol tokens_;  ///< symbols from here on are no tokens
  Token unknown_;
  std::array<Symbol, 256> bytes_;
  MergeTable merges_;
  std::unordered_map<std::string, Token> whole_words_;  ///< in the byte alphabet; empty unless they are taken
};

}  // namespace weir
