// The reader in every mode over a real file: the right bytes at any offset, faults as values with file and
// offset, more requests than the ring holds, and the page cache left as it was.
#include "experts/reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>

#include "base/random.h"
#include "experts/plan.h"
#include "experts/read_piece.h"
#include "experts/read_source.h"
#include "support/temp_dir.h"

namespace weir {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

/// Bytes that tell their offset.
std::vector<uint8_t> pattern(size_t bytes, uint64_t seed = 7) {
  std::vector<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(random_u64(seed, i / 8) >> (8 * (i % 8)));
  return data;
}

struct Slice {
  uint64_t offset, bytes;
  uint32_t file = 0;
};

/// Memory for one slice at the reader's alignment, with a guard behind it.
class Destination {
 public:
  Destination(const ExpertReader& reader, const Slice& slice) : reader_(reader), slice_(slice) {
    room_ = reader.stride(slice.bytes);
    const uint64_t alignment = std::max<uint64_t>(reader.alignment(), 64);
    memory_ = static_cast<uint8_t*>(
        std::aligned_alloc(alignment, (room_ + 64 + alignment) / alignment * alignment));
    std::memset(memory_, 0xEE, room_ + 64);
  }
  ~Destination() { std::free(memory_); }
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;
  uint8_t* data() { return memory_; }
  void expect(const std::vector<uint8_t>& file) const {
    const uint8_t* first = memory_ + reader_.remainder(slice_.offset);
    ASSERT_EQ(std::memcmp(first, file.data() + slice_.offset, slice_.bytes), 0)
        << slice_.bytes << " bytes at " << slice_.offset;
    for (uint64_t i = 0; i < 64; ++i) ASSERT_EQ(memory_[room_ + i], 0xEE) << "wrote behind its room";
  }

 private:
  const ExpertReader& reader_;
  Slice slice_;
  uint64_t room_;
  uint8_t* memory_;
};

struct ReadCase {
  const char* name;
  IoMode mode;
  bool io_uring;
  uint64_t alignment;  ///< 0: the file system's
  ReadAdvice advice;
};

class Reader : public testing::TestWithParam<ReadCase> {
 protected:
  gguf::File make_file(const std::string& name, const std::vector<uint8_t>& data) {
    const std::string path = dir_.file(name);
    test::write_file(path, data.data(), data.size());
    return {path, data.size(), 64};
  }
  std::unique_ptr<ExpertReader> open(const std::vector<gguf::File>& files) {
    ReaderOptions options;
    options.mode = GetParam().mode;
    options.io_uring = GetParam().io_uring;
    options.alignment_override = GetParam().alignment;
    options.advice = GetParam().advice;
    options.pool_threads = 3;
    return ExpertReader::open(files, options);
  }
  /// Reads all slices at once and returns the faults by tag.
  std::map<uint32_t, std::string> read(ExpertReader& reader, const std::vector<Slice>& slices,
                                       std::vector<std::unique_ptr<Destination>>& destinations) {
    std::vector<ReadRequest> requests;
    for (const Slice& s : slices) {
      destinations.push_back(std::make_unique<Destination>(reader, s));
      const auto tag = static_cast<uint32_t>(requests.size());
      requests.push_back({s.file, s.offset, s.bytes, destinations.back()->data(), tag, 3});
    }
    reader.submit(requests);
    EXPECT_EQ(reader.in_flight(), static_cast<int>(slices.size()));
    std::map<uint32_t, std::string> faults;
    for (size_t i = 0; i < slices.size(); ++i) {
      const auto done = reader.next(true);
      EXPECT_TRUE(done);
      if (done) {
        EXPECT_TRUE(faults.emplace(done->tag, done->fault.message).second) << "a tag came back twice";
      }
    }
    EXPECT_EQ(reader.in_flight(), 0);
    EXPECT_FALSE(reader.next(true)) << "nothing in flight must not block";
    return faults;
  }
  void expect_slices(ExpertReader& reader, const std::vector<std::vector<uint8_t>>& files,
                     const std::vector<Slice>& slices) {
    std::vector<std::unique_ptr<Destination>> destinations;
    const auto faults = read(reader, slices, destinations);
    for (size_t i = 0; i < slices.size(); ++i) {
      EXPECT_EQ(faults.at(static_cast<uint32_t>(i)), "");
      ASSERT_NO_FATAL_FAILURE(destinations[i]->expect(files[slices[i].file]));
    }
  }
  test::TempDir dir_;
};

INSTANTIATE_TEST_SUITE_P(
    Modes, Reader,
    testing::Values(ReadCase{"uring_direct", IoMode::direct, true, 0, ReadAdvice::off},
                    ReadCase{"uring_direct_4096", IoMode::direct, true, 4096, ReadAdvice::off},
                    ReadCase{"uring_direct_16384", IoMode::direct, true, 16384, ReadAdvice::off},
                    ReadCase{"buffered", IoMode::buffered, true, 512, ReadAdvice::off},
                    ReadCase{"buffered_hinted", IoMode::buffered, true, 0, ReadAdvice::bounded},
                    ReadCase{"pool_direct", IoMode::direct, false, 0, ReadAdvice::off},
                    ReadCase{"pool_direct_4096", IoMode::direct, false, 4096, ReadAdvice::off},
                    ReadCase{"pool_buffered", IoMode::buffered, false, 0, ReadAdvice::off},
                    ReadCase{"pool_buffered_hinted", IoMode::buffered, false, 4096, ReadAdvice::bounded}),
    [](const auto& read_case) { return read_case.param.name; });

TEST_P(Reader, GivesTheBytesOfOddOffsetsAndSizesUpToTheEndOfTheFile) {
  constexpr size_t size = 3'000'017;  // not a multiple of anything
  const std::vector<uint8_t> data = pattern(size);
  auto reader = open({make_file("a.bin", data)});
  std::vector<Slice> slices = {
      {0, 1},         {0, 4096},           {1, 4095},         {4095, 2},
      {4096, 4096},   {31, 9000},          {511, 513},        {12345, 70001},
      {size - 1, 1},  {size - 4097, 4097}, {0, size},         {99, (1u << 20)},
      {5, 2'500'000}, {1'000'001, 3},      {size - 513, 513}, {size / 512 * 512, size % 512}};
  expect_slices(*reader, {data}, slices);
}

TEST_P(Reader, TakesMoreRequestsThanTheRingHoldsFromSeveralFiles) {
  const std::vector<uint8_t> a = pattern(600'000, 1), b = pattern(777'777, 2);
  auto reader = open({make_file("a.bin", a), make_file("b.bin", b)});
  std::vector<Slice> slices;
  for (uint64_t i = 0; i < 300; ++i) {
    const uint32_t file = i % 3 == 0;
    const uint64_t bytes = 1 + random_u64(3, 2 * i) % 20'000, size = file ? b.size() : a.size();
    slices.push_back({random_u64(3, 2 * i + 1) % (size - bytes + 1), bytes, file});
  }
  for (int round = 0; round < 3; ++round) expect_slices(*reader, {a, b}, slices);
}

TEST_P(Reader, CountsReadsBytesAndBusyTime) {
  const std::vector<uint8_t> data = pattern(1 << 20);
  auto reader = open({make_file("a.bin", data)});
  expect_slices(*reader, {data}, {{100, 1000}, {100'000, 50'000}});
  const ExpertCounters counters = reader->take_counters();
  EXPECT_EQ(counters.reads, 2u);
  EXPECT_GE(counters.bytes_read, 51'000u);
  EXPECT_LE(counters.bytes_read, 51'000u + 4 * reader->alignment());
  EXPECT_GT(counters.read_busy_ns, 0u);
  EXPECT_EQ(reader->take_counters().reads, 0u);
  EXPECT_EQ(reader->take_counters().read_busy_ns, 0u) << "idle time is not busy";
}

TEST_P(Reader, FilesSpansOfReadsWithTheLedger) {
  const std::vector<uint8_t> data = pattern(100'000);
  auto reader = open({make_file("a.bin", data)});
  LedgerOptions options;
  options.enabled = options.trace = true;
  Ledger ledger(options);
  ledger.begin_generation();
  reader->set_ledger(&ledger);
  const uint64_t before = now_ns();
  expect_slices(*reader, {data}, {{100, 1000}, {5000, 2000}});
  std::vector<uint64_t> bytes;
  for (const Span& span : ledger.spans()) {
    if (span.track != 1) continue;
    EXPECT_EQ(span.name, 3);
    EXPECT_GE(span.begin_ns, before);
    EXPECT_LT(span.begin_ns, span.end_ns);
    EXPECT_LE(span.end_ns, now_ns());
    bytes.push_back(span.value);
  }
  std::sort(bytes.begin(), bytes.end());
  EXPECT_EQ(bytes, (std::vector<uint64_t>{1000, 2000}));
}

TEST_P(Reader, AFileThatShrankAfterOpeningFaultsTheReadsBeyondItsEnd) {
  const std::vector<uint8_t> data = pattern(200'000);
  const gguf::File file = make_file("shrinks.bin", data);
  auto reader = open({file});
  ASSERT_EQ(::truncate(file.path.c_str(), 100'003), 0);
  std::vector<std::unique_ptr<Destination>> destinations;
  const auto faults = read(*reader, {{50, 1000}, {99'990, 13}, {99'990, 100}, {150'000, 5000}}, destinations);
  EXPECT_EQ(faults.at(0), "");
  EXPECT_EQ(faults.at(1), "") << "the slice ends with the file";
  EXPECT_EQ(faults.at(2),
            fmt::format("{}: wanted 100 bytes at offset 99990, got 13: the file ends there; it has "
                        "100003 bytes now and had 200000 when it was opened",
                        file.path));
  EXPECT_THAT(faults.at(3), HasSubstr("wanted 5000 bytes at offset 150000, got 0"));
  destinations[0]->expect(data);
  destinations[1]->expect(data);
  // The reader lives on.
  expect_slices(*reader, {data}, {{0, 100'000}});
}

TEST_P(Reader, ReadsInFlightAreOverBeforeTheReaderIsGone) {
  const std::vector<uint8_t> data = pattern(4 << 20);
  std::vector<std::unique_ptr<Destination>> destinations;
  std::vector<ReadRequest> requests;
  auto reader = open({make_file("a.bin", data)});
  for (uint32_t i = 0; i < 100; ++i) {
    destinations.push_back(std::make_unique<Destination>(*reader, Slice{i * 1000, 500'000}));
    requests.push_back({0, i * 1000, 500'000, destinations.back()->data(), i, 0});
  }
  reader->submit(requests);
  reader.reset();  // and the destinations go after it: the sanitizers see a late write
}

TEST_P(Reader, DescribesItself) {
  auto reader = open({make_file("a.bin", pattern(10'000))});
  const ReadCase& setup = GetParam();
  EXPECT_THAT(reader->description(),
              HasSubstr(setup.mode == IoMode::direct ? ", unbuffered, " : ", buffered, "));
  EXPECT_THAT(reader->description(),
              HasSubstr(setup.io_uring && reader->direct() ? "io_uring" : "3 threads"));
  EXPECT_EQ(reader->direct(), setup.mode == IoMode::direct);
  EXPECT_EQ(reader->page_cache_bytes() == 0, reader->direct());
  if (setup.alignment) {
    EXPECT_EQ(reader->alignment(), setup.alignment);
  }
}

TEST_P(Reader, LeavesThePageCacheAsItWas) {
  const std::vector<uint8_t> data = pattern(8 << 20);
  const gguf::File file = make_file("a.bin", data);
  const int fd = ::open(file.path.c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  ::fdatasync(fd);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
  const auto before = read_memory_use({file.path}).page_cache;
  if (!before || *before > 0) GTEST_SKIP() << "the kernel cannot tell, or keeps the pages";
  auto reader = open({file});
  std::vector<Slice> slices;
  for (uint64_t i = 0; i < 40; ++i) slices.push_back({i * 200'000 + 11, 190'000});
  expect_slices(*reader, {data}, slices);
  EXPECT_LT(*read_memory_use({file.path}).page_cache, 1u << 20) << "of 7.6 MB that were read";
}

TEST(ReaderOptions, AutomaticTakesUnbufferedReadsHere) {
  test::TempDir dir;
  test::write_file(dir.file("a"), std::string(10'000, 'x'));
  auto reader = ExpertReader::open({{dir.file("a"), 10'000, 32}}, {});
  EXPECT_TRUE(reader->direct()) << reader->description();
  EXPECT_THAT(reader->description(), HasSubstr("unbuffered"));
}

TEST(ReaderOptions, AutomaticFallsBackWithAReasonAndDirectRefuses) {
  test::TempDir dir;
  test::write_file(dir.file("a"), pattern(100'000).data(), 100'000);
  ReaderOptions options;
  options.alignment_override = 1;  // no file system serves unbuffered reads at odd offsets
  const gguf::File file{dir.file("a"), 100'000, 33};
  auto reader = ExpertReader::open({file}, options);
  EXPECT_FALSE(reader->direct());
  EXPECT_THAT(reader->description(),
              MatchesRegex("4 threads, buffered, 1-byte alignment \\(unbuffered reads fail: .*\\)"));
  options.mode = IoMode::direct;
  try {
    ExpertReader::open({file}, options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::input);
    EXPECT_THAT(e.what(), HasSubstr("--io direct: " + file.path + ": unbuffered reads fail"));
  }
}

TEST(ReaderOptions, TheProbeSeesAFileSystemThatReturnsOtherBytes) {
  test::TempDir dir;
  std::vector<uint8_t> data = pattern(100'000);
  test::write_file(dir.file("true"), data.data(), data.size());
  data[50'000] ^= 1;
  test::write_file(dir.file("false"), data.data(), data.size());
  const auto probe = [&](const char* direct, uint64_t data_offset) {
    return probe_direct(InputFile::open(dir.file(direct), O_DIRECT), InputFile::open(dir.file("true")),
                        data_offset, 4096);
  };
  EXPECT_EQ(probe("true", 777), "");
  EXPECT_EQ(probe("true", 99'999), "");
  EXPECT_EQ(probe("true", 100'000), "") << "no tensor data";
  EXPECT_THAT(probe("false", 777), HasSubstr("unbuffered reads at offset 0 return other bytes"));
  EXPECT_EQ(probe("false", 60'000), "");
}

TEST(ReaderOptions, AMissingFileIsNamed) {
  test::TempDir dir;
  for (const IoMode mode : {IoMode::automatic, IoMode::direct, IoMode::buffered}) {
    ReaderOptions options;
    options.mode = mode;
    try {
      ExpertReader::open({{dir.file("none"), 1, 0}}, options);
      FAIL();
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(dir.file("none")));
    }
  }
}

TEST(ReaderOptions, UnknownWordsAreNamedWithTheChoices) {
  EXPECT_EQ(parse_io_mode("auto"), IoMode::automatic);
  EXPECT_EQ(parse_io_mode("direct"), IoMode::direct);
  EXPECT_EQ(parse_io_mode("buffered"), IoMode::buffered);
  EXPECT_EQ(parse_read_advice("off"), ReadAdvice::off);
  EXPECT_EQ(parse_read_advice("bounded"), ReadAdvice::bounded);
  EXPECT_THROW(parse_io_mode("mmap"), Error);
  EXPECT_THROW(parse_read_advice("on"), Error);
}

TEST(ReadPiece, ResultsThatNoDiskHereGives) {
  ReadPiece p;
  p.bytes = 8192, p.needed = 5000;
  EXPECT_EQ(advance(p, -EINTR, 512), ReadStep::again);
  EXPECT_EQ(advance(p, -EAGAIN, 512), ReadStep::again);
  EXPECT_EQ(p.start, 0u);
  EXPECT_EQ(advance(p, 1100, 512), ReadStep::again);  // short: go on from an aligned offset
  EXPECT_EQ(p.start, 1024u);
  EXPECT_EQ(advance(p, 3900, 512), ReadStep::again);
  EXPECT_EQ(p.landed, 4924u);
  EXPECT_EQ(p.start, 4608u);
  EXPECT_EQ(advance(p, 392, 512), ReadStep::done);  // the end of the file, behind what is needed
  ReadPiece q;
  q.bytes = 8192, q.needed = 5000;
  EXPECT_EQ(advance(q, 1100, 512), ReadStep::again);
  EXPECT_EQ(advance(q, 76, 512), ReadStep::ended);
  EXPECT_EQ(q.landed, 1100u);
  ReadPiece e;
  e.needed = 1;
  EXPECT_EQ(advance(e, -EIO, 512), ReadStep::failed);
  int passes = 0;
  while (advance(e, -EAGAIN, 512) == ReadStep::again) ASSERT_LT(++passes, 100'000) << "never gives up";
}

TEST(ReadPiece, PiecesCoverTheAlignedSpanOnce) {
  for (const uint64_t alignment : {uint64_t{512}, uint64_t{4096}, uint64_t{1} << 21}) {
    for (const bool direct : {true, false}) {
      for (const uint64_t bytes :
           {uint64_t{1}, uint64_t{4096}, read_piece_bytes, 3 * read_piece_bytes + 77}) {
        for (const uint64_t offset : {uint64_t{0}, uint64_t{37}, uint64_t{4095}, uint64_t{123'456'789}}) {
          std::vector<ReadPiece> pieces;
          uint8_t* const base = nullptr;
          cut_pieces(pieces, 5, 2, offset, bytes, base, alignment, direct);
          uint64_t at = direct ? offset / alignment * alignment : offset;
          uint64_t needed = 0;
          for (const ReadPiece& p : pieces) {
            ASSERT_EQ(p.offset, at);
            ASSERT_EQ(reinterpret_cast<uintptr_t>(p.destination), at - offset / alignment * alignment);
            ASSERT_GT(p.needed, 0u);
            ASSERT_LE(p.needed, p.bytes);
            if (direct) {
              ASSERT_EQ(p.bytes % alignment, 0u);
            }
            at += p.bytes;
            needed = p.offset + p.needed;
          }
          ASSERT_EQ(needed, offset + bytes);
          ASSERT_LT(at - needed, alignment);
        }
      }
    }
  }
}

/// A ring whose system calls fail as the test says.
class UringFaults : public Reader {
 protected:
  void SetUp() override {
    data_ = pattern(3 << 20);
    file_ = make_file("faults", data_);
    ReaderOptions options;
    options.mode = IoMode::direct;
    options.submit_fault = [this] { return submits_++ < refused_ ? submit_error_ : 0; };
    options.wait_fault = [this] { return wait_error_; };
    try {
      reader_ = ExpertReader::open({file_}, options);
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();
    }
    if (reader_->description().rfind("io_uring", 0) != 0) GTEST_SKIP() << reader_->description();
  }
  /// From now on the next `count` submissions fail with `error`.
  void refuse(int error, int count) { submit_error_ = error, refused_ = count, submits_ = 0; }
  void expect_faults(const char* words) {
    std::vector<std::unique_ptr<Destination>> destinations;
    for (const auto& [tag, fault] : read(*reader_, slices_, destinations)) {
      EXPECT_THAT(fault, HasSubstr(file_.path)) << tag;
      EXPECT_THAT(fault, HasSubstr(words)) << tag;
    }
  }
  std::vector<uint8_t> data_;
  gguf::File file_;
  std::unique_ptr<ExpertReader> reader_;
  // More pieces than the ring holds.
  const std::vector<Slice> slices_ = [] {
    std::vector<Slice> slices(100);
    for (size_t i = 0; i < slices.size(); ++i) slices[i] = {i * 30'000, 20'000};
    return slices;
  }();
  int submit_error_ = 0, wait_error_ = 0, refused_ = 0, submits_ = 0;
};

INSTANTIATE_TEST_SUITE_P(, UringFaults,
                         testing::Values(ReadCase{"", IoMode::direct, true, 0, ReadAdvice::off}),
                         [](const auto&) { return "ring"; });

TEST_P(UringFaults, ARefusalThatPassesIsWaitedOut) {
  for (const int error : {EAGAIN, EBUSY, EINTR}) {
    refuse(error, 20);
    expect_slices(*reader_, {data_}, slices_);
  }
}

TEST_P(UringFaults, ARefusalThatPersistsFailsTheReadsAndTheNextOnesGoOn) {
  for (const int error : {EAGAIN, EBUSY}) {
    refuse(error, 1 << 30);
    expect_faults(std::strerror(error));
    refuse(0, 0);
    expect_slices(*reader_, {data_}, slices_);
  }
}

TEST_P(UringFaults, AnErrorOfTheSubmissionFailsTheReadsAndTheNextOnesGoOn) {
  for (const int error : {ENOMEM, EBADF}) {
    refuse(error, 1 << 30);
    expect_faults(std::strerror(error));
    expect_faults(std::strerror(error));
    refuse(0, 0);
    expect_slices(*reader_, {data_}, slices_);
  }
}

TEST_P(UringFaults, WhatComesIsSeenAlthoughWaitingFails) {
  wait_error_ = EINVAL;
  expect_slices(*reader_, {data_}, slices_);
  wait_error_ = EAGAIN;
  expect_slices(*reader_, {data_}, slices_);
}

TEST_P(UringFaults, AReaderThatGoesWithReadsOutstandingIsNotStuck) {
  for (const int error : {0, ENOMEM, EAGAIN}) {
    refuse(error, 1 << 30);
    std::vector<std::unique_ptr<Destination>> destinations;
    std::vector<ReadRequest> requests;
    for (const Slice& s : slices_) {
      destinations.push_back(std::make_unique<Destination>(*reader_, s));
      requests.push_back({0, s.offset, s.bytes, destinations.back()->data(), 0, 3});
    }
    reader_->submit(requests);
    wait_error_ = EINVAL;
    SetUp();  // another reader takes its place
    wait_error_ = 0;
  }
}

}  // namespace
}  // namespace weir
