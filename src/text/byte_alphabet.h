// The printable alphabet in which byte-level vocabularies write their tokens: each byte is one character,
// itself where it is printable in Latin-1, else one from U+0100 upwards in order of the byte (GPT-2's
// encoder).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weir {

/// The character (one or two bytes of UTF-8) that stands for `byte`.
const std::string& alphabet_character(uint8_t byte);
/// Each byte's character.
std::string to_alphabet(std::string_view bytes);
/// The bytes that `text` stands for; nullopt where a character is outside the alphabet.
std::optional<std::string> from_alphabet(std::string_view text);

}  // namespace weir
