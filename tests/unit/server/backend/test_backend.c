// What needs no device: which codes are fatal, finding backends, the search for the driver, and the
// check of images that the driver would believe.

#include "server/backend/backend.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/image.h"
#include "tests/host/host.h"
#include "tests/lib/suite.h"

TEST(backend, fatal_codes)
{
	static const int fatal[] = {
		4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 806, 810};
	int found = 0;

	for (int code = 0; code <= 1000; code++) {
		bool listed = false;

		for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
			listed = listed || fatal[i] == code;
		ck_assert_msg(backend_is_fatal((CUresult)code) == listed, "code %d", code);
		found += listed;
	}
	ck_assert_int_eq(found, 17);
}

TEST(backend, backends_have_names)
{
	ck_assert_ptr_eq(backend_find("cuda"), &backend_cuda);
	ck_assert_ptr_null(backend_find("opencl"));
	ck_assert_ptr_null(backend_find("host_backend.so"));
	ck_assert_ptr_null(backend_find("/there/is/none.so"));
}

/* Every operation is there in both; the compiler would take a missing one for NULL. Only the trial
 * may be: the host has nothing to prove. */
TEST(backend, tables_are_complete)
{
	const struct backend_ops *both[] = {&backend_cuda, &backend_host};

	for (int i = 0; i < 2; i++)
		for (size_t j = 0; j < sizeof(struct backend_ops) / sizeof(void *); j++)
			ck_assert_msg(
				((void *const *)both[i])[j] != NULL ||
					(i && j == offsetof(struct backend_ops, trial) / sizeof(void *)),
				"%s lacks operation %zu", both[i]->name, j);
}

TEST(backend, the_probe_says_why)
{
	struct backend_probe probe;

	ck_assert_int_eq(setenv("FRMPS_DRIVER", "/nonexistent/libcuda.so.1", 1), 0);
	ck_assert_int_eq(backend_cuda.probe(&probe), CUDA_ERROR_NO_DEVICE);
	ck_assert_ptr_nonnull(strstr(probe.text, "FRMPS_DRIVER"));
	/* A library, but no driver. */
	ck_assert_int_eq(setenv("FRMPS_DRIVER", getenv("FRMPS_TEST_KERNELS"), 1), 0);
	ck_assert_int_eq(backend_cuda.probe(&probe), CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
	ck_assert_ptr_nonnull(strstr(probe.text, "12.4"));
	ck_assert_int_eq(backend_host.probe(&probe), CUDA_SUCCESS);
	ck_assert_int_eq(probe.device_count, 1);
}

/*
 * Images
 */

struct image {
	Elf64_Ehdr header;
	Elf64_Shdr sections[3];
	char contents[64];
};

static struct image good_elf(void)
{
	struct image image = {0};

	memcpy(image.header.e_ident, ELFMAG, SELFMAG);
	image.header.e_ident[EI_CLASS] = ELFCLASS64;
	image.header.e_shoff = offsetof(struct image, sections);
	image.header.e_shentsize = sizeof(Elf64_Shdr);
	image.header.e_shnum = 3;
	image.header.e_shstrndx = 1;
	image.sections[1] = (Elf64_Shdr){
		.sh_type = SHT_STRTAB, .sh_offset = offsetof(struct image, contents), .sh_size = 64};
	image.sections[2] = (Elf64_Shdr){.sh_type = SHT_NOBITS, .sh_offset = 1 << 20, .sh_size = 1 << 20};
	return image;
}

TEST(backend, elf_images_stay_inside)
{
	struct image image = good_elf();

	ck_assert_int_eq(image_check(&image, sizeof(image)), IMAGE_ELF);
	ck_assert_int_eq(image_check(&image, sizeof(image) - 1), IMAGE_BAD);
	ck_assert_int_eq(image_check(&image, sizeof(Elf64_Ehdr)), IMAGE_BAD);
	ck_assert_int_eq(image_check(&image, 10), IMAGE_BAD);
	image.sections[1].sh_offset = UINT64_MAX - 8;
	ck_assert_int_eq(image_check(&image, sizeof(image)), IMAGE_BAD);
	image = good_elf();
	image.header.e_shoff = UINT64_MAX - 64;
	ck_assert_int_eq(image_check(&image, sizeof(image)), IMAGE_BAD);
	image = good_elf();
	image.header.e_shstrndx = 3;
	ck_assert_int_eq(image_check(&image, sizeof(image)), IMAGE_BAD);
	image = good_elf();
	image.header.e_phnum = 1000;
	image.header.e_phentsize = sizeof(Elf64_Phdr);
	ck_assert_int_eq(image_check(&image, sizeof(image)), IMAGE_BAD);
	image = good_elf();
	image.header.e_shnum = 0; /* the number is in section 0 */
	image.sections[0].sh_size = 3;
	ck_assert_int_eq(image_check(&image, sizeof(image)), IMAGE_ELF);
	image.sections[0].sh_size = UINT64_MAX / sizeof(Elf64_Shdr) + 2;
	ck_assert_int_eq(image_check(&image, sizeof(image)), IMAGE_BAD);
}

/* What lies behind the image would do as sections. */
TEST(backend, tables_of_sections_stay_inside)
{
	struct {
		struct image image;
		Elf64_Shdr more[2];
	} memory = {.image = good_elf()};

	memory.image.header.e_shnum = 4;
	ck_assert_int_eq(image_check(&memory, sizeof(memory.image)), IMAGE_ELF);
	memory.image.header.e_shnum = 5;
	ck_assert_int_eq(image_check(&memory, sizeof(memory.image)), IMAGE_BAD);
	ck_assert_int_eq(image_check(&memory, sizeof(memory)), IMAGE_ELF);
}

struct fatbin {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t payload_bytes;
	uint16_t kind, entry_version;
	uint32_t entry_header_bytes;
	uint64_t entry_bytes;
	char contents[32];
};

TEST(backend, fat_binaries_stay_inside)
{
	struct fatbin image = {.magic = 0xba55ed50,
		.version = 1,
		.header_bytes = 16,
		.payload_bytes = 48,
		.kind = 2,
		.entry_version = 1,
		.entry_header_bytes = 16,
		.entry_bytes = 32};

	ck_assert_int_eq(image_check(&image, sizeof(image)), IMAGE_FATBIN);
	ck_assert_int_eq(image_check(&image, sizeof(image) - 1), IMAGE_BAD);
	image.entry_bytes = 33;
	ck_assert_int_eq(image_check(&image, sizeof(image)), IMAGE_BAD);
	image.entry_bytes = UINT64_MAX;
	ck_assert_int_eq(image_check(&image, sizeof(image)), IMAGE_BAD);
	image.entry_bytes = 30; /* two bytes are no entry */
	ck_assert_int_eq(image_check(&image, sizeof(image)), IMAGE_BAD);
	image.entry_bytes = 32;
	image.entry_header_bytes = 0;
	ck_assert_int_eq(image_check(&image, sizeof(image)), IMAGE_BAD);
	image.entry_header_bytes = 16;
	image.payload_bytes = UINT64_MAX - 4;
	ck_assert_int_eq(image_check(&image, sizeof(image)), IMAGE_BAD);
}

/* Entries as nvcc writes them: text for 9.0, then code. */
static struct {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t payload_bytes;
	struct {
		uint16_t kind, version;
		uint32_t header_bytes;
		uint64_t bytes;
		uint32_t sizes[3], arch, name[2];
		uint64_t flags, padding[2];
		char contents[8];
	} entries[2];
} mixed = {.magic = 0xba55ed50, .version = 1, .header_bytes = 16, .payload_bytes = sizeof(mixed.entries)};

static bool mixed_has_code(uint16_t kind, unsigned arch, uint64_t flags, unsigned device)
{
	for (int i = 0; i < 2; i++) {
		mixed.entries[i].header_bytes = 64;
		mixed.entries[i].bytes = 8;
	}
	mixed.entries[0].kind = 1;
	mixed.entries[0].arch = 90;
	mixed.entries[0].flags = 0x8011;
	mixed.entries[1].kind = kind;
	mixed.entries[1].arch = arch;
	mixed.entries[1].flags = flags;
	ck_assert_int_eq(image_check(&mixed, sizeof(mixed)), IMAGE_FATBIN);
	return image_has_code(&mixed, sizeof(mixed), device);
}

TEST(backend, code_is_for_a_device)
{
	struct image image = good_elf();

	ck_assert(mixed_has_code(2, 90, 0x11, 90));
	ck_assert(mixed_has_code(2, 90, 0x100011, 90)); /* 9.0a */
	ck_assert(mixed_has_code(2, 80, 0x11, 86));
	ck_assert(!mixed_has_code(2, 80, 0x100011, 86));
	ck_assert(!mixed_has_code(2, 86, 0x11, 80));
	ck_assert(!mixed_has_code(2, 80, 0x11, 90));
	ck_assert(!mixed_has_code(1, 90, 0x11, 90)); /* text only */
	ck_assert(!mixed_has_code(2, 90, 0x11, 0));
	mixed.entries[1].header_bytes = 16; /* does not say */
	mixed.entries[1].bytes = 56;
	ck_assert(!image_has_code(&mixed, sizeof(mixed), 90));
	ck_assert(!image_has_code(&mixed, sizeof(mixed) - 1, 90));
	ck_assert(!image_has_code(".version 8.0", 12, 90));
	image.header.e_machine = 190;
	image.header.e_ident[EI_ABIVERSION] = 8;
	image.header.e_flags = 0x06005a04;
	ck_assert(image_has_code(&image, sizeof(image), 90));
	ck_assert(!image_has_code(&image, sizeof(image), 80));
	image.header.e_ident[EI_ABIVERSION] = 7;
	image.header.e_flags = 0x005a055a;
	ck_assert(image_has_code(&image, sizeof(image), 90));
	image.header.e_machine = EM_X86_64;
	ck_assert(!image_has_code(&image, sizeof(image), 90));
}

TEST(backend, text_is_for_the_compiler)
{
	ck_assert_int_eq(image_check(".version 8.0", 12), IMAGE_TEXT);
	ck_assert_int_eq(image_check("\0\0\0\0....", 8), IMAGE_BAD);
	ck_assert_int_eq(image_check(".v", 2), IMAGE_BAD);
	ck_assert_int_eq(image_check("\xb1\x43\x62\x46....", 8), IMAGE_BAD);
}

TEST_LOOP(backend, attributes_carry_no_handles, 0, 20)
{
	struct frmps_launch_attribute given[2] = {{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY}, {.id = _i}};
	bool refused = _i == 7 || _i == 12 || _i == 13 || _i == 15 || _i > 16;
	CUlaunchAttribute out[2];

	given[0].value[0] = 5;
	ck_assert_int_eq(cuda_attributes(given, 2, out), refused ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS);
	ck_assert_int_eq(out[0].id, CU_LAUNCH_ATTRIBUTE_PRIORITY);
	ck_assert_int_eq(out[0].value.priority, 5);
}

int main(void)
{
	Suite *suite = suite_create("server/backend");
	TCase *tests = suite_case(suite, "backend");

	suite_add(tests, "backend");
	return suite_run(suite);
}
