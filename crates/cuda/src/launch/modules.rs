//! Machine code of all kernels of a model: compiled at once, found by its source.

use super::{KernelsOptions, product_batch};
use crate::compile::{Source, architecture_option, compile};
use crate::device::{Device, Function, check};
use crate::error::Error;
use cudarc::driver::sys;
use std::collections::HashMap;
use std::ffi::{CString, c_void};

/// Modules by source, and by number of tiles for products of a batch.
pub(super) struct Modules(HashMap<(Source, usize), Module>);

impl Modules {
    /// Compiles these sources, or finds them on disk.
    pub fn load(
        device: &Device,
        options: &KernelsOptions,
        sources: impl Iterator<Item = Source>,
    ) -> Result<Modules, Error> {
        let keys = sources.flat_map(|source| {
            let tiles = if source == Source::ProductBatch { &product_batch::TILES[..] } else { &[0] };
            tiles.iter().map(move |&tiles| (source, tiles))
        });
        let architecture = &architecture_option(device.facts().capability);
        let compiled = std::thread::scope(|scope| {
            let threads: Vec<_> = keys
                .map(|(source, tiles)| {
                    let definitions = options.definitions(source, tiles);
                    ((source, tiles), scope.spawn(move || compile(source, &definitions, architecture)))
                })
                .collect();
            let join = |(key, thread): (_, std::thread::ScopedJoinHandle<'_, _>)| {
                (key, thread.join().expect("compiling does not panic"))
            };
            threads.into_iter().map(join).collect::<Vec<_>>()
        });
        let load = |(key, bytes): (_, Result<Vec<u8>, Error>)| Ok((key, Module::load(device, &bytes?)?));
        Ok(Modules(compiled.into_iter().map(load).collect::<Result<_, Error>>()?))
    }

    /// The module of a source, which was loaded.
    pub fn of(&self, source: Source) -> &Module {
        &self.0[&(source, 0)]
    }

    /// That of products of a batch of so many tiles.
    pub fn for_tiles(&self, tiles: usize) -> &Module {
        &self.0[&(Source::ProductBatch, tiles)]
    }
}

/// Loaded machine code. It stays loaded: a process loads a handful.
pub(super) struct Module(sys::CUmodule);

impl Module {
    fn load(device: &Device, bytes: &[u8]) -> Result<Module, Error> {
        device.inner.bind()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the bytes are machine code made by the compiler, and live through the call.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&mut module, bytes.as_ptr().cast::<c_void>()) })?;
        Ok(Module(module))
    }

    /// A kernel by name; `much` when it asks for more shared memory at launch than kernels usually may.
    pub fn function(&self, device: &Device, name: &'static str, much: bool) -> Result<Function, Error> {
        self.function_with(name, if much { device.facts().shared_bytes } else { 0 })
    }

    /// A kernel of several that differ in what is behind the name, such as the format of weights.
    pub fn variant(&self, name: &'static str, variant: &str, shared_bytes: usize) -> Result<Function, Error> {
        self.symbol(&format!("{name}_{variant}"), name, shared_bytes)
    }

    /// A kernel by name that may ask for this much shared memory at launch; 0 is what kernels usually may.
    pub fn function_with(&self, name: &'static str, shared_bytes: usize) -> Result<Function, Error> {
        self.symbol(name, name, shared_bytes)
    }

    fn symbol(&self, symbol: &str, name: &'static str, shared_bytes: usize) -> Result<Function, Error> {
        let symbol = CString::new(symbol).expect("names of kernels have no zero bytes");
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded and the name ends with a zero.
        check("cuModuleGetFunction", unsafe { sys::cuModuleGetFunction(&mut function, self.0, symbol.as_ptr()) })?;
        use sys::CUfunction_attribute as A;
        // All kernels ask for the same split between cache and shared memory: a multiprocessor cannot run two kernels
        // with different splits side by side, and dependent kernels are meant to overlap.
        let split = (A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100);
        let most = (A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes as i32);
        for (attribute, value) in [Some(split), (shared_bytes > 0).then_some(most)].into_iter().flatten() {
            // SAFETY: the function was just found.
            check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(function, attribute, value) })?;
        }
        Ok(Function { raw: function, name })
    }
}
