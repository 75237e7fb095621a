// Sizes of module images and their sealed copies, for good, cut and hostile bytes.

#include "client/state/image.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/state/image_kinds.h"
#include "tests/lib/suite.h"

#define PAGE ((size_t)4096)

struct wrapper {
	uint32_t magic, version;
	const void *data, *extra;
};

struct fatbin {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t payload_bytes;
	uint8_t payload[48];
};

static const struct fatbin fatbin = {0xba55ed50, 1, 16, 48, "payload"};

/* An ELF file with a hole (NOBITS) and its program headers last, as compilers for the device write
 * them. */
struct elf {
	Elf64_Ehdr header;
	uint8_t text[32];
	Elf64_Shdr sections[3];
	Elf64_Phdr segments[2];
};

static struct elf elf_make(void)
{
	struct elf elf = {
		.header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1, 0x41, 8},
			.e_shoff = offsetof(struct elf, sections),
			.e_shnum = 3,
			.e_shentsize = sizeof(Elf64_Shdr),
			.e_phoff = offsetof(struct elf, segments),
			.e_phnum = 2,
			.e_phentsize = sizeof(Elf64_Phdr)},
		.sections = {{.sh_type = SHT_NULL},
			{.sh_type = SHT_PROGBITS, .sh_offset = offsetof(struct elf, text), .sh_size = 32},
			{.sh_type = SHT_NOBITS, .sh_offset = 96, .sh_size = 1 << 30}},
	};

	return elf;
}

static uint64_t measured(const void *at, uint64_t available)
{
	uint64_t bytes = 0;

	return image_measure(at, available, &bytes) == CUDA_SUCCESS ? bytes : 0;
}

/* Opens, checks bytes and seals, closes. */
static void check_copy(const void *code, const void *content, uint64_t bytes)
{
	struct image image;
	uint8_t copy[4096];

	ck_assert_int_eq(image_open(code, &image), CUDA_SUCCESS);
	ck_assert_uint_eq(image.bytes, bytes);
	ck_assert_int_eq(lseek(image.fd, 0, SEEK_END), (off_t)bytes);
	ck_assert_int_eq(pread(image.fd, copy, sizeof(copy), 0), (ssize_t)bytes);
	ck_assert_mem_eq(copy, content, bytes);
	ck_assert_int_eq(
		fcntl(image.fd, F_GET_SEALS), F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	ck_assert_int_eq(fcntl(image.fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(pwrite(image.fd, "x", 1, 0), -1);
	image_close(&image);
	ck_assert_int_eq(image.fd, -1);
}

static CUresult open_code(const void *code)
{
	struct image image = {.fd = -1};
	CUresult result = image_open(code, &image);

	image_close(&image);
	return result;
}

/* Memory that ends right behind the bytes. */
static void *at_edge(const void *bytes, size_t length)
{
	uint8_t *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(pages, MAP_FAILED);
	ck_assert_int_eq(mprotect(pages + PAGE, PAGE, PROT_NONE), 0);
	memcpy(pages + PAGE - length, bytes, length);
	return pages + PAGE - length;
}

TEST(image, fatbin_size)
{
	ck_assert_uint_eq(measured(&fatbin, sizeof(fatbin)), 64);
	ck_assert_uint_eq(measured(&fatbin, 1000), 64);
	for (uint64_t n = 0; n < 64; ++n)
		ck_assert_uint_eq(measured(&fatbin, n), 0);
	check_copy(&fatbin, &fatbin, 64);
}

TEST(image, fatbin_hostile)
{
	static const uint64_t sizes[] = {
		UINT64_MAX, UINT64_MAX - 15, IMAGE_BYTES_MAX, IMAGE_BYTES_MAX - 15, UINT64_C(1) << 63};
	struct fatbin bad = fatbin;

	for (size_t i = 0; i < 5; ++i) {
		bad.payload_bytes = sizes[i];
		ck_assert_int_eq(open_code(&bad), CUDA_ERROR_INVALID_IMAGE);
		ck_assert_uint_eq(measured(&bad, UINT64_MAX), 0);
	}
	bad = fatbin;
	bad.version = 2;
	ck_assert_uint_eq(measured(&bad, 64), 0);
	bad = fatbin;
	bad.header_bytes = 8;
	ck_assert_uint_eq(measured(&bad, 64), 0);
}

START_TEST(wrapper)
{
	struct wrapper w = {0x466243b1, 1, &fatbin, NULL};
	const void *prelinked[] = {&fatbin, NULL};
	struct image image;

	check_copy(&w, &fatbin, 64);
	ck_assert_int_eq(image_open(&w, &image), CUDA_SUCCESS);
	ck_assert(!image.relocatable);
	image_close(&image);
	w.version = 2;
	w.extra = prelinked;
	check_copy(&w, &fatbin, 64);
	ck_assert_int_eq(image_open(&w, &image), CUDA_SUCCESS);
	ck_assert(image.relocatable);
	image_close(&image);
}
END_TEST

TEST(image, wrapper_hostile)
{
	struct wrapper w = {0x466243b1, 3, &fatbin, NULL}, inner = {0x466243b1, 1, &fatbin, NULL};

	ck_assert_int_eq(open_code(&w), CUDA_ERROR_NOT_SUPPORTED);
	w.version = 1;
	w.data = NULL;
	ck_assert_int_eq(open_code(&w), CUDA_ERROR_INVALID_IMAGE);
	w.data = (const void *)16;
	ck_assert_int_eq(open_code(&w), CUDA_ERROR_INVALID_IMAGE);
	w.data = (const void *)UINTPTR_MAX;
	ck_assert_int_eq(open_code(&w), CUDA_ERROR_INVALID_IMAGE);
	w.data = &inner;
	ck_assert_int_eq(open_code(&w), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_uint_eq(measured(&inner, sizeof(inner)), 0);
	ck_assert_int_eq(open_code(at_edge(&inner, 12)), CUDA_ERROR_INVALID_IMAGE);
}

TEST(image, elf_size)
{
	struct elf elf = elf_make();

	ck_assert_uint_eq(measured(&elf, sizeof(elf)), sizeof(elf));
	ck_assert_uint_eq(measured(&elf, UINT64_MAX / 2), sizeof(elf));
	for (uint64_t n = 0; n < sizeof(elf); ++n)
		ck_assert_uint_eq(measured(&elf, n), 0);
	check_copy(&elf, &elf, sizeof(elf));
	check_copy(at_edge(&elf, sizeof(elf)), &elf, sizeof(elf));
	/* The furthest end counts, whatever it belongs to. */
	elf.sections[1].sh_offset = 1000;
	ck_assert_uint_eq(measured(&elf, sizeof(elf)), 0);
	ck_assert_uint_eq(measured(&elf, 2000), 1032);
	elf.sections[1].sh_offset = 64;
	elf.header.e_phoff = 0;
	ck_assert_uint_eq(measured(&elf, sizeof(elf)), offsetof(struct elf, segments));
}

TEST(image, elf_many_sections)
{
	struct {
		Elf64_Ehdr header;
		Elf64_Shdr sections[200];
	} elf = {.header = elf_make().header};

	elf.header.e_phoff = 0;
	elf.header.e_shoff = sizeof(Elf64_Ehdr);
	elf.header.e_shnum = 0;
	elf.sections[0].sh_size = 200;
	ck_assert_uint_eq(measured(&elf, sizeof(elf)), sizeof(elf));
	elf.sections[199] = (Elf64_Shdr){.sh_type = SHT_PROGBITS, .sh_offset = sizeof(elf) - 8, .sh_size = 9};
	ck_assert_uint_eq(measured(&elf, sizeof(elf)), 0);
	ck_assert_uint_eq(measured(&elf, sizeof(elf) + 1), sizeof(elf) + 1);
	elf.sections[0].sh_size = UINT64_MAX / 64 + 2;
	ck_assert_uint_eq(measured(&elf, UINT64_MAX), 0);
}

TEST(image, elf_without_sections)
{
	struct {
		Elf64_Ehdr header;
		Elf64_Phdr segments[2];
		uint8_t bytes[100];
	} elf = {.header = elf_make().header};

	elf.header.e_shoff = 0;
	elf.header.e_phoff = sizeof(Elf64_Ehdr);
	elf.segments[1].p_offset = sizeof(elf) - 100;
	elf.segments[1].p_filesz = 90;
	ck_assert_uint_eq(measured(&elf, sizeof(elf)), sizeof(elf) - 10 - sizeof(elf) % 4);
	elf.segments[1].p_filesz = UINT64_MAX;
	ck_assert_uint_eq(measured(&elf, sizeof(elf)), 0);
}

TEST(image, elf_hostile)
{
	struct elf good = elf_make(), bad = good;

	bad.header.e_shoff = UINT64_MAX - 8;
	ck_assert_int_eq(open_code(&bad), CUDA_ERROR_INVALID_IMAGE);
	bad.header.e_shoff = IMAGE_BYTES_MAX - 8;
	ck_assert_int_eq(open_code(&bad), CUDA_ERROR_INVALID_IMAGE);
	bad = good;
	bad.sections[1].sh_size = UINT64_MAX;
	ck_assert_int_eq(open_code(&bad), CUDA_ERROR_INVALID_IMAGE);
	bad = good;
	bad.sections[1].sh_size = UINT64_C(1) << 31;
	ck_assert_int_eq(open_code(at_edge(&bad, sizeof(bad))), CUDA_ERROR_INVALID_IMAGE);
	bad = good;
	bad.header.e_shentsize = 1;
	ck_assert_uint_eq(measured(&bad, sizeof(bad)), 0);
	bad = good;
	bad.header.e_phentsize = 65535;
	ck_assert_uint_eq(measured(&bad, sizeof(bad)), 0);
	bad = good;
	bad.header.e_ident[EI_CLASS] = ELFCLASS32;
	ck_assert_uint_eq(measured(&bad, sizeof(bad)), 0);
	bad = good;
	bad.header.e_ident[EI_DATA] = ELFDATA2MSB;
	ck_assert_uint_eq(measured(&bad, sizeof(bad)), 0);
}

START_TEST(text)
{
	static const char ptx[] = "\n\t //\n.version 8.0\n";
	char *longer = malloc(100000);

	ck_assert_uint_eq(measured(ptx, sizeof(ptx)), sizeof(ptx));
	ck_assert_uint_eq(measured(ptx, sizeof(ptx) - 1), 0);
	check_copy(ptx, ptx, sizeof(ptx));
	check_copy(at_edge(".v", 3), ".v", 3);
	ck_assert_int_eq(open_code(at_edge("unterminated", 12)), CUDA_ERROR_INVALID_IMAGE);
	memset(longer, ' ', 100000);
	strcpy(longer + 50000, "// text");
	ck_assert_uint_eq(measured(longer, 100000), 50008);
	free(longer);
}
END_TEST

TEST(image, no_image)
{
	ck_assert_int_eq(open_code(NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(open_code((const void *)8), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_int_eq(open_code(""), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_int_eq(open_code("  "), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_int_eq(open_code("\x01\x5a\xe5\x1e..."), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_int_eq(open_code("BC\xc0\xde"), CUDA_SUCCESS); /* could be text; the compiler will say */
	ck_assert_int_eq(open_code("\xff\xfe"), CUDA_ERROR_INVALID_IMAGE);
}

/* A temporary file with the bytes, opened as an image. */
static CUresult open_file(const void *bytes, size_t length, uint64_t *ret_bytes)
{
	char path[] = "/tmp/frmps-image-XXXXXX";
	struct image image = {.fd = -1};
	int fd = mkstemp(path);
	CUresult result;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, length), (ssize_t)length);
	close(fd);
	result = image_open_file(path, &image);
	unlink(path);
	*ret_bytes = image.bytes;
	if (result == CUDA_SUCCESS)
		ck_assert_int_eq(lseek(image.fd, 0, SEEK_END), (off_t)image.bytes);
	image_close(&image);
	return result;
}

TEST(image, files)
{
	struct wrapper w = {0x466243b1, 1, &fatbin, NULL};
	struct elf elf = elf_make();
	struct image image;
	uint64_t bytes;

	ck_assert_int_eq(open_file(&elf, sizeof(elf), &bytes), CUDA_SUCCESS);
	ck_assert_uint_eq(bytes, sizeof(elf));
	ck_assert_int_eq(open_file(&elf, sizeof(elf) - 1, &bytes), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_int_eq(open_file(".version 8.0", 12, &bytes), CUDA_SUCCESS);
	ck_assert_uint_eq(bytes, 13);
	ck_assert_int_eq(open_file(&w, sizeof(w), &bytes), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_int_eq(open_file("", 0, &bytes), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_int_eq(image_open_file("/nonexistent", &image), CUDA_ERROR_FILE_NOT_FOUND);
	ck_assert_int_eq(image_open_file("/tmp", &image), CUDA_ERROR_FILE_NOT_FOUND);
	ck_assert_int_eq(image_open_file(NULL, &image), CUDA_ERROR_INVALID_VALUE);
}

/* A fat binary with members of several kinds, and what is left of it. */
struct mixed {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t payload_bytes;
	struct {
		uint16_t kind, version;
		uint32_t header_bytes;
		uint64_t payload_bytes;
		uint8_t payload[8];
	} members[3];
};

static struct mixed mixed_make(const char *kinds)
{
	struct mixed mixed = {.magic = 0xba55ed50, .version = 1, .header_bytes = 16};

	for (int i = 0; kinds[i]; i++) {
		mixed.members[i].kind = (uint16_t)(kinds[i] - '0');
		mixed.members[i].header_bytes = 16;
		mixed.members[i].payload_bytes = 8;
		memset(mixed.members[i].payload, kinds[i], 8);
		mixed.payload_bytes += sizeof(mixed.members[0]);
	}
	return mixed;
}

static const struct {
	struct image_kinds left_out;
	const char *members, *rest; /* kinds: 1 text, 2 code, 8 something else */
	CUresult code;
} shortenings[] = {
	{{.code = false}, "218", "218", CUDA_SUCCESS},
	{{.code = true}, "218", "18", CUDA_SUCCESS},
	{{.code = true, .intermediate = true}, "821", "1", CUDA_SUCCESS},
	{{.text = true}, "121", "2", CUDA_SUCCESS},
	{{.text = true, .intermediate = true}, "182", "2", CUDA_SUCCESS},
	{{.text = true}, "11", NULL, CUDA_ERROR_JIT_COMPILATION_DISABLED},
	{{.code = true}, "22", NULL, CUDA_ERROR_NO_BINARY_FOR_GPU},
	{{.code = true, .text = true, .intermediate = true}, "12", NULL, CUDA_ERROR_JIT_COMPILATION_DISABLED},
};

TEST_LOOP(image, members_are_left_out, 0, sizeof(shortenings) / sizeof(shortenings[0]))
{
	struct mixed mixed = mixed_make(shortenings[_i].members), rest;

	image_left_out = shortenings[_i].left_out;
	if (shortenings[_i].rest) {
		rest = mixed_make(shortenings[_i].rest);
		check_copy(&mixed, &rest, 16 + rest.payload_bytes);
	} else {
		ck_assert_int_eq(open_code(&mixed), shortenings[_i].code);
	}
	image_left_out = (struct image_kinds){.code = false};
}

TEST(image, nothing_is_left_out_of_what_is_no_fat_binary)
{
	struct mixed mixed = mixed_make("21");
	struct elf elf = elf_make();

	image_left_out = (struct image_kinds){.code = true};
	check_copy(&elf, &elf, sizeof(elf));
	check_copy(".version 8.0", ".version 8.0", sizeof(".version 8.0"));
	image_left_out = (struct image_kinds){.text = true};
	check_copy(&elf, &elf, sizeof(elf));
	ck_assert_int_eq(open_code(".version 8.0"), CUDA_ERROR_JIT_COMPILATION_DISABLED);
	/* A member that is longer than the image. */
	mixed.members[1].payload_bytes = 9;
	ck_assert_int_eq(open_code(&mixed), CUDA_ERROR_INVALID_IMAGE);
	mixed.members[1].payload_bytes = UINT64_MAX - 15;
	ck_assert_int_eq(open_code(&mixed), CUDA_ERROR_INVALID_IMAGE);
	mixed.members[1].header_bytes = 0;
	ck_assert_int_eq(open_code(&mixed), CUDA_ERROR_INVALID_IMAGE);
	image_left_out = (struct image_kinds){.code = false};
}

int main(void)
{
	Suite *suite = suite_create("image");
	TCase *tcase = suite_case(suite, "image");

	suite_add(tcase, "image");
	tcase_add_test(tcase, wrapper);
	tcase_add_test(tcase, text);
	return suite_run(suite);
}
