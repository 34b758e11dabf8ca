// The trace's round trip, and that no damaged byte of it is believed.
#include "experts/route_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"
#include "support/temp_dir.h"

namespace weir {
namespace {

using testing::HasSubstr;

class Trace : public testing::Test {
 protected:
  RouteTraceHeader header_{0x0123456789abcdef, 4, 2, {8, 0, 256, 300}, {1000, 0, 2000, 5'000'000'000}};

  std::vector<int32_t> ids(int layer, int rows, uint64_t seed) const {
    std::vector<int32_t> out;
    const auto experts = static_cast<uint64_t>(header_.experts[static_cast<size_t>(layer)]);
    for (int r = 0; r < rows; ++r) {
      const uint64_t first = random_u64(seed, static_cast<uint64_t>(r)) % (experts - 1);
      out.push_back(static_cast<int32_t>(first));
      out.push_back(static_cast<int32_t>(experts - 1));
    }
    return out;
  }
  void write() {
    RouteTraceWriter writer(path_, header_);
    writer.begin_round(Phase::prefill);
    writer.record(0, ids(0, 300, 1), 300);
    writer.record(2, ids(2, 300, 2), 300);
    writer.begin_round(Phase::decode);
    writer.record(3, ids(3, 2, 3), 2);
    writer.begin_round(Phase::verify);
    writer.begin_round(Phase::decode);
    writer.record(0, ids(0, 1, 4), 1);
    EXPECT_FALSE(std::filesystem::exists(path_)) << "a trace appears whole or not at all";
    writer.close();
  }
  std::string read_error(const std::string& bytes) {
    try {
      RouteTrace::parse({bytes.begin(), bytes.end()}, path_);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::input);
      EXPECT_THAT(e.what(), HasSubstr(path_));
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      return e.what();
    }
    return "";
  }
  test::TempDir dir_;
  std::string path_ = dir_.file("routes");
};

TEST_F(Trace, ComesBackAsItWasWritten) {
  write();
  const RouteTrace trace = RouteTrace::read(path_);
  EXPECT_EQ(trace.header.fingerprint, header_.fingerprint);
  EXPECT_EQ(trace.header.layers, 4);
  EXPECT_EQ(trace.header.top_k, 2);
  EXPECT_EQ(trace.header.experts, header_.experts);
  EXPECT_EQ(trace.header.expert_bytes, header_.expert_bytes);
  ASSERT_EQ(trace.records.size(), 4u);
  const auto expect = [&](size_t i, Phase phase, uint32_t round, int layer, int rows, uint64_t seed) {
    const RouteRecord& r = trace.records[i];
    EXPECT_EQ(r.phase, phase);
    EXPECT_EQ(r.round, round);
    EXPECT_EQ(r.layer, layer);
    EXPECT_EQ(r.rows, rows);
    EXPECT_EQ(std::vector<int32_t>(r.ids.begin(), r.ids.end()), ids(layer, rows, seed));
  };
  expect(0, Phase::prefill, 0, 0, 300, 1);
  expect(1, Phase::prefill, 0, 2, 300, 2);
  expect(2, Phase::decode, 1, 3, 2, 3);
  expect(3, Phase::decode, 3, 0, 1, 4);
}

TEST_F(Trace, IdsTakeAByteUpTo256Experts) {
  write();
  const uint64_t header = 8 + 4 + 8 + 4 + 4 + 4 * 12, rounds = 4 * 2, end = 1 + 8 + 8;
  const uint64_t records = 2 * (1 + 1 + 2 + 600) + (1 + 1 + 1 + 8) + (1 + 1 + 1 + 2);
  EXPECT_EQ(std::filesystem::file_size(path_), header + rounds + records + end);
}

TEST_F(Trace, EveryTruncationIsAnError) {
  write();
  const std::string whole = test::read_file(path_);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    ASSERT_NE(read_error(whole.substr(0, bytes)), "") << bytes;
  EXPECT_THAT(read_error(whole.substr(0, 200)), HasSubstr("offset "));
  EXPECT_THAT(read_error(whole + "x"), HasSubstr("1 bytes follow the end"));
}

TEST_F(Trace, EveryFlippedBitIsAnError) {
  write();
  const std::string whole = test::read_file(path_);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    ASSERT_NE(read_error(damaged), "") << "byte " << i;
  }
}

TEST_F(Trace, AWrongByteUnderARightChecksumNeverYieldsWhatTheHeaderExcludes) {
  write();
  const std::string whole = test::read_file(path_);
  int refused = 0;
  for (size_t i = 8; i + 8 < whole.size(); ++i) {
    std::string forged = whole;
    forged[i] = static_cast<char>(forged[i] ^ (1 << (7 - i % 8)));
    const uint64_t sum = Hash64().add(forged.data(), forged.size() - 8).value();
    std::memcpy(forged.data() + forged.size() - 8, &sum, 8);
    try {
      const RouteTrace trace = RouteTrace::parse({forged.begin(), forged.end()}, path_);
      const auto top_k = static_cast<size_t>(trace.header.top_k);
      for (const RouteRecord& r : trace.records) {
        const int experts = trace.header.experts.at(static_cast<size_t>(r.layer));
        ASSERT_EQ(r.ids.size(), static_cast<size_t>(r.rows) * top_k);
        for (size_t k = 0; k < r.ids.size(); ++k) {
          ASSERT_LT(r.ids[k], experts) << "byte " << i;
          ASSERT_TRUE(k % top_k == 0 || r.ids[k] > r.ids[k - 1]) << "byte " << i;
        }
      }
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

TEST_F(Trace, OtherFilesAndVersionsAreNamedForWhatTheyAre) {
  write();
  std::string bytes = test::read_file(path_);
  EXPECT_THAT(read_error("GGUF" + bytes), HasSubstr("not a route trace"));
  bytes[8] = 2;
  EXPECT_THAT(read_error(bytes), HasSubstr("version 2; this program reads version 1"));
}

TEST_F(Trace, WithoutCloseNothingIsLeftBehind) {
  { RouteTraceWriter writer(path_, header_); }
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(Trace, APathThatCannotBeMadeIsBadInputAndNamed) {
  try {
    RouteTraceWriter writer(dir_.file("no/such/folder"), header_);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::input);
    EXPECT_THAT(e.what(), HasSubstr("no/such/folder"));
  }
}

}  // namespace
}  // namespace weir
