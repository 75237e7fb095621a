// The cuda backend on a driver of the test's own: what clients may ask of it that the driver should
// not be asked, and what is left when the driver refuses.

#include <fcntl.h>
#include <malloc.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/nvjit.h"
#include "server/backend/fatbin.h"
#include "server/backend/image.h"
#include "tests/unit/server/backend/image_bed.h"

/* ---- arrays ---- */

static int imports, destroyed;

static CUresult array_create(CUarray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR *form)
{
	(void)form;
	*ret_array = (CUarray)(void *)&imports;
	return CUDA_SUCCESS;
}

static CUresult array_requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *ret_need, CUarray array, CUdevice device)
{
	(void)array;
	(void)device;
	*ret_need = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = 4096, .alignment = 512};
	return CUDA_SUCCESS;
}

static CUresult array_destroy(CUarray array)
{
	(void)array;
	return CUDA_SUCCESS;
}

/* Takes the descriptor. */
static CUresult external_import(CUexternalMemory *ret_memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *handle)
{
	close(handle->handle.fd);
	*ret_memory = (CUexternalMemory)(void *)&imports;
	imports++;
	return CUDA_SUCCESS;
}

static CUresult external_array(CUmipmappedArray *ret_mipmap, CUexternalMemory memory,
	const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *form)
{
	(void)ret_mipmap;
	(void)memory;
	(void)form;
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult external_destroy(CUexternalMemory memory)
{
	(void)memory;
	destroyed++;
	return CUDA_SUCCESS;
}

/* What the first try took is the array's, and goes with it. */
TEST(driver, an_array_is_backed_once)
{
	const struct wire_array form = {.width = 4, .height = 4, .format = 32, .channels = 1};
	const struct wire_back_array memory = {.span = 1 << 21, .offset = 8, .bytes = 64};
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct backend_array *array;
	uint64_t bytes, alignment;

	driver.array_create = array_create;
	driver.array_requirements = array_requirements;
	driver.array_destroy = array_destroy;
	driver.external_import = external_import;
	driver.external_array = external_array;
	driver.external_destroy = external_destroy;
	ck_assert_int_eq(cuda_array_make(&form, &array, &bytes, &alignment), CUDA_SUCCESS);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(cuda_array_back(array, &memory, fd), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(imports, 1);
	ck_assert_int_eq(cuda_array_free(array), CUDA_SUCCESS);
	ck_assert_int_eq(destroyed, 1);
	close(fd);
}

/* ---- texts ---- */

static char folder[] = "/tmp/frmps-driver-XXXXXX";

/* A folder with a driver whose compiler is fake_ptx.c. */
static void make_driver(void)
{
	char path[128];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/libnvidia-ptxjitcompiler.so.1", folder);
	ck_assert_int_eq(symlink(getenv("FRMPS_TEST_PTX_LIBRARY"), path), 0);
	snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
	setenv("FRMPS_DRIVER", path, 1);
	nvjit.arch = 90;
}

static void drop_driver(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/libnvidia-ptxjitcompiler.so.1", folder);
	unlink(path);
	rmdir(folder);
}

static char log_text[512];
static uint64_t room = UINT64_MAX;

/* Compiles a text. Return: the code's bytes; 0: there is none, and `code` says why */
static size_t compile(
	const void *text, size_t bytes, const struct wire_option *wishes, uint32_t count, CUresult code)
{
	const struct wire_options options = {wishes, count};
	void *out = NULL;
	size_t size = 0;

	ck_assert_int_eq(
		cuda_module_compile(text, bytes, room, &options, log_text, sizeof(log_text), &out, &size),
		code);
	if (!code)
		ck_assert_mem_eq(out, ".version", 8);
	free(out);
	return code ? 0 : size;
}

TEST(driver, texts_are_compiled_as_their_program_wants)
{
	static const char plain[] = ".version 8.0\n.target sm_80\n", own[] = ".version 8.0\n.target sm_90a\n",
			  wrong[] = ".version wrong\n";
	const struct wire_option wishes[] = {{.id = CU_JIT_MAX_REGISTERS, .value = 32},
		{.id = CU_JIT_OPTIMIZATION_LEVEL, .value = 0}, {.id = CU_JIT_GENERATE_LINE_INFO, .value = 1},
		{.id = CU_JIT_GENERATE_DEBUG_INFO, .value = 0}, {.id = CU_JIT_CACHE_MODE, .value = 1},
		{.id = CU_JIT_LOG_VERBOSE, .value = 1}, {.id = CU_JIT_SPLIT_COMPILE, .value = 4096}};
	const struct wire_option target = {.id = CU_JIT_TARGET, .value = 0x10000 + 90},
				 threads = {.id = CU_JIT_THREADS_PER_BLOCK, .value = 1024};
	const struct wire_option list = {.id = CU_JIT_GLOBAL_SYMBOL_NAMES, .value = 1};

	make_driver();
	/* With a NUL behind it, and without one. */
	ck_assert_uint_eq(compile(plain, sizeof(plain), NULL, 0, 0), strlen(plain));
	ck_assert_str_eq(log_text, "--gpu-name=sm_90a");
	ck_assert_uint_eq(compile(plain, strlen(plain) - 1, NULL, 0, 0), strlen(plain) - 1);
	ck_assert_uint_eq(compile(own, sizeof(own), NULL, 0, 0), strlen(own));
	ck_assert_str_eq(log_text, "--gpu-name=sm_90a");
	/* How many threads there are is not for a program to say. */
	compile(plain, sizeof(plain), wishes, 7, 0);
	ck_assert_str_eq(log_text,
		"--maxrregcount=32\n--opt-level=0\n--generate-line-info\n--def-load-cache=cg\n--verbose\n"
		"--gpu-name=sm_90a");
	compile(plain, sizeof(plain), &target, 1, 0);
	ck_assert_str_eq(log_text, "--gpu-name=sm_90a");
	compile(plain, sizeof(plain), &threads, 1, 0);
	ck_assert_str_eq(log_text, "--maxrregcount=64\n--gpu-name=sm_90a");
	compile(wrong, sizeof(wrong), NULL, 0, CUDA_ERROR_INVALID_PTX);
	ck_assert_str_eq(log_text, "it is wrong");
	/* No compiler is asked: it is no text of the kind. */
	compile("wrong", 6, NULL, 0, CUDA_ERROR_INVALID_IMAGE);
	compile(plain, sizeof(plain), &list, 1, CUDA_ERROR_NOT_SUPPORTED);
	drop_driver();
}

/* A member of a fat binary: a text for an architecture. Return: behind it */
static uint8_t *put_text(uint8_t *at, unsigned arch, uint64_t flags, const char *text)
{
	const struct fatbin_entry entry = {FATBIN_KIND_TEXT, 0x101,
		sizeof(struct fatbin_entry) + sizeof(struct fatbin_target), strlen(text)};
	const struct fatbin_target target = {.arch = arch, .flags = flags};

	memcpy(at, &entry, sizeof(entry));
	memcpy(at + sizeof(entry), &target, sizeof(target));
	memcpy(at + entry.header_bytes, text, strlen(text));
	return at + entry.header_bytes + strlen(text);
}

TEST(driver, of_a_fat_binary_the_best_text_is_compiled)
{
	struct fatbin_header header = {FATBIN_MAGIC, 1, sizeof(header), 0};
	uint8_t fat[1024], *end = fat + sizeof(header);

	make_driver();
	end = put_text(end, 75, 0, ".version 7");
	end = put_text(end, 89, 0x20000, ".version 8.9 alone");
	end = put_text(end, 80, 0, ".version 8.0");
	end = put_text(end, 100, 0, ".version 10.0.0");
	header.payload_bytes = (uint64_t)(end - fat) - sizeof(header);
	memcpy(fat, &header, sizeof(header));
	ck_assert_uint_eq(compile(fat, (size_t)(end - fat), NULL, 0, 0), strlen(".version 8.0"));
	nvjit.arch = 70;
	compile(fat, (size_t)(end - fat), NULL, 0, CUDA_ERROR_NO_BINARY_FOR_GPU);
	compile("\x7f"
		"ELF no",
		10, NULL, 0, CUDA_ERROR_INVALID_IMAGE);
	drop_driver();
}

static CUresult add(struct backend_link *link, uint32_t type, const void *at, size_t bytes,
	const struct wire_option *option)
{
	const struct wire_options own = {option, option ? 1 : 0};
	const struct backend_link_input input = {
		.type = type, .at = at, .bytes = bytes, .name = "input", .options = &own};

	return cuda_link_add(link, &input);
}

TEST(driver, a_link_takes_all_that_the_driver_takes)
{
	static const char first[] = ".version 8.0\n", second[] = ".version 8.1\n";
	const struct wire_option registers = {.id = CU_JIT_MAX_REGISTERS, .value = 32},
				 fewer = {.id = CU_JIT_MAX_REGISTERS, .value = 16};
	const struct wire_options options = {&registers, 1};
	const char *errors, *remarks;
	struct backend_link *link;
	const void *linked;
	size_t bytes;

	make_driver();
	ck_assert_int_eq(cuda_link_create(&options, &link), CUDA_SUCCESS);
	ck_assert_int_eq(add(link, CU_JIT_INPUT_PTX, first, sizeof(first), NULL), CUDA_SUCCESS);
	/* What it says of itself is stronger. */
	ck_assert_int_eq(add(link, CU_JIT_INPUT_PTX, second, sizeof(second), &fewer), CUDA_SUCCESS);
	ck_assert_int_eq(add(link, CU_JIT_INPUT_PTX, "wrong", 5, NULL), CUDA_ERROR_INVALID_PTX);
	/* What lies about itself. */
	ck_assert_int_eq(add(link, CU_JIT_INPUT_CUBIN, first, sizeof(first), NULL), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_int_eq(
		add(link, CU_JIT_INPUT_OBJECT, first, sizeof(first), NULL), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_int_eq(
		add(link, CU_JIT_INPUT_FATBINARY, first, sizeof(first), NULL), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_int_eq(
		add(link, CU_JIT_INPUT_LIBRARY, first, sizeof(first), NULL), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_int_eq(add(link, CU_JIT_INPUT_NVVM, first, sizeof(first), NULL), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(cuda_link_complete(link, &linked, &bytes), CUDA_SUCCESS);
	ck_assert_uint_eq(bytes, strlen(first) + strlen(second));
	ck_assert_mem_eq(linked, ".version 8.0\n.version 8.1\n", bytes);
	cuda_link_logs(link, &errors, &remarks);
	ck_assert_str_eq(errors, "it is wrong");
	ck_assert_ptr_nonnull(strstr(remarks, "--maxrregcount=32\n--gpu-name=sm_90\n--compile-only\n"
					      "--maxrregcount=16\n--gpu-name=sm_90\n"));
	ck_assert_int_eq(cuda_link_destroy(link), CUDA_SUCCESS);
	drop_driver();
}

TEST(driver, a_link_breaks_over_a_second_definition)
{
	static const char text[] = ".version 8.0\n";
	struct backend_link *link;
	const void *linked;
	size_t bytes;

	make_driver();
	ck_assert_int_eq(cuda_link_create(NULL, &link), CUDA_SUCCESS);
	ck_assert_int_eq(add(link, CU_JIT_INPUT_PTX, text, sizeof(text), NULL), CUDA_SUCCESS);
	ck_assert_int_eq(add(link, CU_JIT_INPUT_PTX, text, sizeof(text), NULL), CUDA_ERROR_INVALID_SOURCE);
	ck_assert_int_eq(cuda_link_complete(link, &linked, &bytes), CUDA_ERROR_INVALID_SOURCE);
	ck_assert_int_eq(cuda_link_destroy(link), CUDA_SUCCESS);
	drop_driver();
}

/* An object of the host with a fat binary in a section; the section's name and place are its. */
static size_t make_object(uint8_t *at, const char *text)
{
	static const char names[] = "\0.shstrtab\0.nv_fatbin";
	struct fatbin_header header = {FATBIN_MAGIC, 1, sizeof(header), 0};
	Elf64_Ehdr elf = {.e_type = ET_REL,
		.e_machine = EM_X86_64,
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = 3,
		.e_shstrndx = 1,
		.e_ehsize = sizeof(elf)};
	Elf64_Shdr sections[3] = {{0},
		{.sh_name = 1, .sh_type = SHT_STRTAB, .sh_offset = 64, .sh_size = sizeof(names)},
		{.sh_name = 11, .sh_type = SHT_PROGBITS, .sh_offset = 128}};
	uint8_t *end = put_text(at + 128 + sizeof(header), 80, 0, text);

	memcpy(elf.e_ident, ELFMAG, SELFMAG);
	elf.e_ident[EI_CLASS] = ELFCLASS64;
	header.payload_bytes = (uint64_t)(end - at) - 128 - sizeof(header);
	sections[2].sh_size = (uint64_t)(end - at) - 128;
	elf.e_shoff = 1024;
	memcpy(at, &elf, sizeof(elf));
	memcpy(at + 64, names, sizeof(names));
	memcpy(at + 128, &header, sizeof(header));
	memcpy(at + elf.e_shoff, sections, sizeof(sections));
	return elf.e_shoff + sizeof(sections);
}

static void expect_linked(uint32_t type, const void *at, size_t bytes, CUresult code)
{
	struct backend_link *link;
	const void *linked;
	size_t size;

	ck_assert_int_eq(cuda_link_create(NULL, &link), CUDA_SUCCESS);
	ck_assert_int_eq(add(link, type, at, bytes, NULL), code);
	if (!code) {
		ck_assert_int_eq(cuda_link_complete(link, &linked, &size), CUDA_SUCCESS);
		ck_assert_uint_eq(size, strlen(".version 8.0"));
		ck_assert_mem_eq(linked, ".version 8.0", size);
	}
	ck_assert_int_eq(cuda_link_destroy(link), CUDA_SUCCESS);
}

TEST(driver, code_in_objects_and_archives_of_the_host_is_found)
{
	const uint64_t far = UINT64_C(1) << 40;
	uint8_t object[2048] = {0}, archive[4096] = "!<arch>\n";
	size_t bytes = make_object(object, ".version 8.0");
	char header[61];

	make_driver();
	expect_linked(CU_JIT_INPUT_OBJECT, object, bytes, CUDA_SUCCESS);
	snprintf(header, sizeof(header), "%-16s%-12d%-6d%-6d%-8d%-10zu`\n", "a.o/", 0, 0, 0, 0, bytes);
	memcpy(archive + 8, header, 60);
	memcpy(archive + 68, object, bytes);
	expect_linked(CU_JIT_INPUT_LIBRARY, archive, 68 + bytes, CUDA_SUCCESS);
	/* The fat binary ends far behind its section. */
	memcpy(object + 128 + offsetof(struct fatbin_header, payload_bytes), &far, sizeof(far));
	expect_linked(CU_JIT_INPUT_OBJECT, object, bytes, CUDA_ERROR_INVALID_IMAGE);
	drop_driver();
}

TEST(driver, without_its_compiler_a_driver_says_so)
{
	setenv("FRMPS_DRIVER", "/nonexistent/libcuda.so.1", 1);
	nvjit.arch = 90;
	compile(".version 8.0", 13, NULL, 0, CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
}

/* ---- modules ---- */

static int loads;

static CUresult device_attribute(int *ret_value, CUdevice_attribute attribute, CUdevice device)
{
	(void)device;
	*ret_value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
	return CUDA_SUCCESS;
}

static CUresult library_load(CUlibrary *ret_library, const void *bytes, CUjit_option *jit_options,
	void **jit_values, unsigned int jit_count, CUlibraryOption *options, void **values,
	unsigned int count)
{
	(void)bytes;
	(void)jit_options;
	(void)jit_values;
	(void)jit_count;
	(void)options;
	(void)values;
	(void)count;
	*ret_library = (CUlibrary)(void *)&loads;
	loads++;
	return CUDA_SUCCESS;
}

static CUresult library_count(unsigned int *ret_count, CUlibrary library)
{
	(void)library;
	*ret_count = 0;
	return CUDA_SUCCESS;
}

static CUresult library_unload(CUlibrary library)
{
	(void)library;
	return CUDA_SUCCESS;
}

static CUresult load_module(struct backend_variables *variables)
{
	struct backend_load load = {
		.image = image, .bytes = image_bytes, .room = room, .variables = variables};
	struct backend_module *module;
	CUresult code;

	driver.device_attribute = device_attribute;
	driver.library_load = library_load;
	driver.library_count = library_count;
	driver.library_unload = library_unload;
	loads = 0;
	code = cuda_module_load(&load, &module);
	if (!code)
		ck_assert_int_eq(cuda_module_unload(module), CUDA_SUCCESS);
	ck_assert_int_eq(loads, !code);
	return code;
}

/* Each member's sections lie far outside of it, and of the fat binary. */
TEST(driver, the_driver_gets_no_member_that_lies)
{
	const uint64_t far = UINT64_C(1) << 40;
	uint8_t *cubin = NULL;

	load("statics.fatbin");
	ck_assert_int_eq(load_module(NULL), CUDA_SUCCESS);
	for (size_t i = 0; i < image_bytes - SELFMAG; i++)
		if (!memcmp(image + i, ELFMAG, SELFMAG)) {
			cubin = image + i;
			memcpy(cubin + offsetof(Elf64_Ehdr, e_shoff), &far, sizeof(far));
		}
	ck_assert_ptr_nonnull(cubin);
	ck_assert_int_eq(image_check(image, image_bytes), IMAGE_FATBIN);
	ck_assert_int_eq(load_module(NULL), CUDA_ERROR_NO_BINARY_FOR_GPU);
	unload();
}

/* The driver would unpack it, whatever that takes. */
TEST(driver, the_driver_gets_nothing_that_unpacks_to_more_than_the_room)
{
	load("statics_zstd.fatbin");
	room = fatbin_unpacks_to((const uint8_t *)image, 90);
	ck_assert_uint_gt(room, 0);
	ck_assert_int_eq(load_module(NULL), CUDA_SUCCESS);
	room--;
	ck_assert_int_eq(load_module(NULL), CUDA_ERROR_OUT_OF_MEMORY);
	room = UINT64_MAX;
	unload();
}

/* The address of a variable goes to where the table of sections is. */
TEST(driver, the_driver_gets_no_cubin_that_moving_has_spoilt)
{
	struct backend_variables variables = {.at = UINT64_C(0x540012345600)};
	Elf64_Shdr *slots;

	load("statics.cubin");
	ck_assert_int_eq(load_module(&variables), CUDA_SUCCESS);
	ck_assert_uint_gt(variables.bytes, 0);
	free(variables.first);
	variables.first = NULL;
	section_in(image, ".nv.constant4", &slots);
	/* Slots of variables are where a program's sections are told to be. */
	slots->sh_offset = 0;
	ck_assert_int_eq(image_check(image, image_bytes), IMAGE_ELF);
	ck_assert_int_eq(load_module(&variables), CUDA_ERROR_NO_BINARY_FOR_GPU);
	unload();
}

int main(void)
{
	Suite *suite = suite_create("driver");
	TCase *tests = tcase_create("driver");

	suite_add(tests, "driver");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
