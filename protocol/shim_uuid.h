// The mark of the project's own libcuda.so.1. The library exports exactly the driver's symbols, so
// the service could open it by accident in place of the real driver and wait for itself. The
// service calls cuGetExportTable(&table, FRMPS_SHIM_UUID): the library returns CUDA_SUCCESS and a
// non-NULL table, before cuInit too; a real driver knows no such table.

#ifndef FRMPS_PROTOCOL_SHIM_UUID_H
#define FRMPS_PROTOCOL_SHIM_UUID_H

/* Initialiser of a CUuuid's 16 bytes. */
#define FRMPS_SHIM_UUID_BYTES                                                                                \
	{                                                                                                    \
		0x66, 0x72, 0x6d, 0x70, 0x73, 0x2d, 0x4c, 0x31, 0x1a, 0x5c, 0x0d, 0x77, 0x29, 0x3e, 0x61,    \
			0x48                                                                                 \
	}

#endif
