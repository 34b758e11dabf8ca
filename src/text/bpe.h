// Byte-pair merging of one word: the adjacent pair with the lowest rank is merged first, the leftmost among
// equals, until no pair has a rank. O(n log n) in the bytes of the word, and some 12 bytes of memory for
// each. Knows no pre-tokenizer and no special tokens.
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

  /// Buffers of encode, kept by the caller from word to word. A part of the word is known by its first byte.
  class Scratch {
   public:
    /// What the buffers take for a word of so many bytes.
    static uint64_t bytes(uint64_t word);

   private:
    friend class Bpe;
    static constexpr size_t fan_out = 16;  ///< ranks under one of the level above

    void resize(size_t word);
    void set_rank(size_t part, int32_t rank);
    /// The part that the pair with the lowest rank begins with, the leftmost among equals; npos: no pair has
    /// a rank.
    size_t lowest() const;

    std::vector<Symbol> symbols;   ///< by part
    std::vector<int32_t> lengths;  ///< of each part in bytes, at its first byte and at its last
    /// Of the pair that each part begins (no_rank: none), then the lowest of each `fan_out` of these, and so
    /// on to one.
    std::vector<int32_t> ranks;
    std::vector<size_t> levels;  ///< where each level begins in ranks, and the end
  };
  /// Appends the tokens of `word` (at most 2^31 - 1 bytes). A symbol that is no token is written byte by
  /// byte; a byte that is no token becomes the unknown token, or throws Error (input) where there is none.
  void encode(std::string_view word, Scratch& scratch, std::vector<Token>& tokens) const;

 private:
  void merge(Scratch& scratch, size_t size) const;
  void rank_pair(Scratch& scratch, size_t left, size_t size) const;
  void emit(std::string_view word, Symbol symbol, std::vector<Token>& tokens) const;

  std::string source_;
  Symbol tokens_;  ///< symbols from here on are no tokens
  Token unknown_;
  std::array<Symbol, 256> bytes_;
  MergeTable merges_;
  std::unordered_map<std::string, Token> whole_words_;  ///< in the byte alphabet; empty unless they are taken
  size_t longest_whole_word_ = 0;                       ///< in bytes of the alphabet
};

}  // namespace weir
