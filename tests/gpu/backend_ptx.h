// Kernels of backend_check.c as text, for any device of compute capability 8.0 or later. The text
// is an array of characters without a NUL behind it on purpose: a client's image may come so.

#ifndef FRMPS_TESTS_GPU_BACKEND_PTX_H
#define FRMPS_TESTS_GPU_BACKEND_PTX_H

/* out[i] = a[i] + b[i]; spin: until *word == value; echo: odd parameter sizes; many: out = last of
 * 70 parameters; tick: counts in *word for ever; marks: every block writes 1 to the word of its
 * multiprocessor; rank: every thread writes the number of its block; nothing; crash. */
static const char ptx_head[] =
	".version 8.0\n"
	".target sm_80\n"
	".address_size 64\n"
	".visible .global .align 4 .u32 counter = 7;\n"
	".visible .entry nothing() { ret; }\n"
	".visible .entry late() { ret; }\n"
	".visible .entry crash() { trap; ret; }\n"
	".visible .entry add(.param .u64 out, .param .u64 a, .param .u64 b, .param .u32 count)\n"
	"{\n"
	"	.reg .pred %p; .reg .b32 %r<7>; .reg .b64 %d<8>;\n"
	"	mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
	"	mad.lo.u32 %r1, %r1, %r2, %r3;\n"
	"	ld.param.u32 %r4, [count]; setp.ge.u32 %p, %r1, %r4; @%p ret;\n"
	"	ld.param.u64 %d1, [out]; ld.param.u64 %d2, [a]; ld.param.u64 %d3, [b];\n"
	"	mul.wide.u32 %d4, %r1, 4;\n"
	"	add.u64 %d2, %d2, %d4; add.u64 %d3, %d3, %d4; add.u64 %d1, %d1, %d4;\n"
	"	ld.global.u32 %r5, [%d2]; ld.global.u32 %r6, [%d3]; add.u32 %r5, %r5, %r6;\n"
	"	st.global.u32 [%d1], %r5; ret;\n"
	"}\n"
	".visible .entry spin(.param .u64 word, .param .u32 value)\n"
	"{\n"
	"	.reg .pred %p; .reg .b32 %r<3>; .reg .b64 %d;\n"
	"	ld.param.u64 %d, [word]; ld.param.u32 %r1, [value];\n"
	"again:	ld.volatile.global.u32 %r2, [%d]; setp.ne.u32 %p, %r1, %r2; @%p bra again;\n"
	"	ret;\n"
	"}\n"
	".visible .entry tick(.param .u64 word)\n"
	"{\n"
	"	.reg .b64 %d<3>;\n"
	"	ld.param.u64 %d1, [word]; mov.u64 %d2, 0;\n"
	"again:	add.u64 %d2, %d2, 1; st.volatile.global.u64 [%d1], %d2; bra again;\n"
	"}\n"
	".visible .entry marks(.param .u64 out)\n"
	"{\n"
	"	.reg .pred %p; .reg .b32 %r<2>; .reg .b64 %d<4>;\n"
	"	mov.u64 %d1, %clock64;\n"
	"again:	mov.u64 %d2, %clock64; sub.u64 %d2, %d2, %d1; setp.lt.u64 %p, %d2, 50000; @%p bra again;\n"
	"	mov.u32 %r0, %smid; mov.u32 %r1, 1; ld.param.u64 %d1, [out]; mul.wide.u32 %d2, %r0, 4;\n"
	"	add.u64 %d1, %d1, %d2; st.global.u32 [%d1], %r1; ret;\n"
	"}\n"
	".visible .entry rank(.param .u64 out)\n"
	"{\n"
	"	.reg .b32 %r; .reg .b64 %d<3>;\n"
	"	mov.u32 %r, %ctaid.x; ld.param.u64 %d1, [out]; mul.wide.u32 %d2, %r, 4;\n"
	"	add.u64 %d1, %d1, %d2; add.u32 %r, %r, 1; st.global.u32 [%d1], %r; ret;\n"
	"}\n"
	".visible .entry echo(.param .u8 a, .param .u64 b, .param .u16 c, .param .align 4 .b8 d[24], .param "
	".u64 out)\n"
	"{\n"
	"	.reg .b16 %h<3>; .reg .b32 %r; .reg .b64 %d<3>;\n"
	"	ld.param.u8 %h1, [a]; ld.param.u64 %d1, [b]; ld.param.u16 %h2, [c]; ld.param.u32 %r, "
	"[d+20];\n"
	"	ld.param.u64 %d2, [out];\n"
	"	st.global.u64 [%d2], %d1; st.global.u32 [%d2+8], %r; st.global.u16 [%d2+12], %h2;\n"
	"	st.global.u8 [%d2+14], %h1; ret;\n"
	"}\n";

/* Behind the parameters p0 … p68 of a kernel `many`, which are written by a loop. */
static const char ptx_many[] =
	"{\n"
	"	.reg .b32 %r<3>; .reg .b64 %d;\n"
	"	ld.param.u32 %r1, [p0]; ld.param.u32 %r2, [p68]; add.u32 %r1, %r1, %r2;\n"
	"	ld.param.u64 %d, [out]; st.global.u32 [%d], %r1; ret;\n"
	"}\n";
#define PTX_MANY_WORDS 69

#endif
