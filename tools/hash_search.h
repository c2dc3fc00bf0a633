// Error of the candidates of bench/hash_code.h on N(0,1), and the search for their multipliers.
#pragma once

#include <span>

namespace walsh {

// The commands --hash and --hash-search of train_trellis; returns its exit status, 2 for arguments
// that it does not understand.
//
//   --hash RULE STEP_BITS STATE_BITS STRETCH[,STRETCH]... TILES M[,M2]...
//
// The NMSE of codes by hexadecimal multipliers over TILES tiles with the full search of the seam;
// levels are stretched to STRETCH standard deviations of the weights, a least-squares scale
// follows.
//
//   --hash-search RULE STEP_BITS STATE_BITS STRETCH folded|upper|any COUNT [SEED]
//
// Tries COUNT random multipliers (folded: repeated odd 16-bit ones, all of them if COUNT is 32768;
// upper: odd multiples of 2^10) on 12 tiles, the best twelfth of them on 64 others, the best 16 of
// those on 400 others.
int run_hash(std::span<char* const> arguments);

}  // namespace walsh
