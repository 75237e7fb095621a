// PTX text that several programs load, link or spoil.

#pragma once

#include <string>

/* A kernel `name`: adds `addend` to its first argument, a pointer, times its second one, a 32-bit
 * number; and a variable `name`_count that counts the threads that ran it. */
static inline std::string ptx_adder(const std::string &name, unsigned addend)
{
	return ".version 8.0\n.target sm_90\n.address_size 64\n"
	       ".visible .global .align 4 .u32 " +
	       name +
	       "_count = 0;\n"
	       ".visible .entry " +
	       name +
	       "(.param .u64 out, .param .u32 factor)\n{\n"
	       "\t.reg .b64 %rd<4>;\n\t.reg .b32 %r<5>;\n"
	       "\tld.param.u64 %rd1, [out];\n\tcvta.to.global.u64 %rd2, %rd1;\n"
	       "\tld.param.u32 %r1, [factor];\n\tmul.lo.u32 %r2, %r1, " +
	       std::to_string(addend) +
	       ";\n"
	       "\tatom.global.add.u32 %r3, [%rd2], %r2;\n"
	       "\tmov.u64 %rd3, " +
	       name +
	       "_count;\n\tatom.global.add.u32 %r4, [%rd3], 1;\n"
	       "\tret;\n}\n";
}
