strata power simulate --policy night.yaml --nodes 200
strata power policy put night.yaml
strata power policy show night
