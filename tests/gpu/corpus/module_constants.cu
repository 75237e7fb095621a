// Sixty-four modules at once, each with constants of one name: first values, values that the program
// writes, and what stays of both beside the others. Twice.

#include "check.h"

#include <string>

// Adds number and table[thread % 4] to out[thread]; one module's numbers differ from another's.
static std::string text(unsigned number)
{
	return ".version 8.0\n.target sm_90\n.address_size 64\n"
	       ".visible .const .align 4 .u32 number = " +
	       std::to_string(number) + ";\n.visible .const .align 4 .u32 table[200] = {" +
	       std::to_string(3 * number) +
	       ", 5, 7};\n"
	       ".visible .entry add(.param .u64 out)\n{\n"
	       "\t.reg .b64 %d<5>;\n\t.reg .b32 %r<6>;\n"
	       "\tld.param.u64 %d1, [out];\n\tcvta.to.global.u64 %d1, %d1;\n"
	       "\tmov.u32 %r1, %tid.x;\n\tmul.wide.u32 %d2, %r1, 4;\n\tadd.u64 %d1, %d1, %d2;\n"
	       "\tand.b32 %r1, %r1, 3;\n\tmul.wide.u32 %d2, %r1, 4;\n\tmov.u64 %d3, table;\n"
	       "\tadd.u64 %d3, %d3, %d2;\n\tld.const.u32 %r2, [%d3];\n\tld.const.u32 %r3, [number];\n"
	       "\tld.global.u32 %r4, [%d1];\n\tadd.u32 %r4, %r4, %r2;\n\tadd.u32 %r4, %r4, %r3;\n"
	       "\tst.global.u32 [%d1], %r4;\n\tret;\n}\n";
}

int main()
{
	const unsigned count = 64, threads = 32;
	std::vector<CUmodule> module(count);
	std::vector<CUfunction> function(count);
	std::vector<unsigned> model(threads);

	CHECK(cudaFree(nullptr));
	buffer<unsigned> out(threads);
	void *arguments[] = {&out.at};
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < count; i++) {
			CHECK(cuModuleLoadData(&module[i], text(i + 1).c_str()));
			CHECK(cuModuleGetFunction(&function[i], module[i], "add"));
		}
		for (unsigned turn = 0; turn < 3; turn++) {
			for (unsigned i = 0; i < count; i++) {
				const unsigned table[4] = {3 * (i + 1), turn == 2 ? 100 + i : 5, 7, 0};

				CHECK(cuLaunchKernel(
					function[i], 1, 1, 1, threads, 1, 1, 0, nullptr, arguments, nullptr));
				for (unsigned j = 0; j < threads; j++)
					model[j] += table[j % 4] + (turn ? 1000 * i : i + 1);
			}
			for (unsigned i = 0; i < count; i++) {
				CUdeviceptr number, table;
				size_t size;
				const unsigned numbers[2] = {1000 * i, 100 + i};

				CHECK(cuModuleGetGlobal(&number, &size, module[i], "number"));
				EXPECT(size == 4);
				CHECK(cuMemcpyHtoD(number, &numbers[0], 4));
				CHECK(cuModuleGetGlobal(&table, &size, module[i], "table"));
				EXPECT(size == 800);
				if (turn == 1)
					CHECK(cuMemcpyHtoD(table + 4, &numbers[1], 4));
			}
		}
		for (unsigned i = 0; i < count; i++)
			CHECK(cuModuleUnload(module[i * 37 % count]));
		printf("sums %u %u %u %u\n", out.read()[0], out.read()[1], out.read()[2], out.read()[31]);
		EXPECT(out.read() == model);
	}
	return 0;
}
